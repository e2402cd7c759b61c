"""One connection to the hub or its CDN: requests in, answers out, each with a line in the log."""

from __future__ import annotations

import json
import socket
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sandbox.model_hub.context import Context
from sandbox.model_hub.faults import REFUSALS, BadRules

_SEND_BUFFER = 256 << 10  # bytes


class Reply(Exception):
    """Ends a request with a status, an error as the hub words it, and its code (X-Error-Code)."""

    def __init__(self, status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, headers or {}


class Exchange(BaseHTTPRequestHandler):
    """What hub and CDN have in common. `route` answers by sending something or by raising Reply."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    context: Context
    side: str

    def setup(self) -> None:
        super().setup()
        # What waits in a buffer here would count as sent, though no client has it.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        time.sleep(self.context.delay_s)  # the round trip of TCP's handshake

    def do_GET(self) -> None:
        self.note: dict[str, Any] = {"repository": "", "file": "", "status": 0, "sent": 0, "fault": None, "range": None}
        self.words = [unquote(word) for word in urlsplit(self.path).path.strip("/").split("/")]
        with self.context.answering():
            time.sleep(self.context.delay_s)
            try:
                self.answer()
            except (ConnectionError, TimeoutError):
                self.close_connection = True  # the client went away
            finally:
                self._log()

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self) -> None:
        try:
            self.route()
        except BadRules as problem:
            self.send_error_as_hub(Reply(500, str(problem)))
        except Reply as reply:
            self.send_error_as_hub(reply)

    def route(self) -> None:
        raise NotImplementedError

    def about(self, repository: str, file: str = "") -> None:
        """What the request is about, for the log and the faults. Raises Reply where one refuses it."""
        self.note.update(repository=repository, file=file)
        on = "file" if file else "api"
        rule = self.context.faults.find(*REFUSALS, repository=repository, file=file, on=on)
        if rule:
            self.note["fault"] = rule.fault
            after = {} if rule.retry_after is None else {"Retry-After": str(rule.retry_after)}
            words = {"429": "You have exceeded our rate limit.", "503": "Service Unavailable"}[rule.fault]
            raise Reply(int(rule.fault), words, headers=after)

    def question(self, name: str, default: str = "") -> str:
        return parse_qs(urlsplit(self.path).query).get(name, [default])[-1]

    @property
    def token(self) -> str | None:
        scheme, _, token = (self.headers.get("authorization") or "").partition(" ")
        return token if scheme.lower() == "bearer" else None

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.note["status"] = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.start(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)
            self.note["sent"] += len(body)

    def send_json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        self.send(
            200, json.dumps(value).encode(), {"Content-Type": "application/json; charset=utf-8"} | (headers or {})
        )

    def send_error_as_hub(self, reply: Reply) -> None:
        told = {"X-Error-Message": reply.message} | ({"X-Error-Code": reply.code} if reply.code else {})
        body = json.dumps({"error": reply.message}).encode()
        self.send(reply.status, body, {"Content-Type": "application/json; charset=utf-8", **told, **reply.headers})

    def _log(self) -> None:
        request = {"t": time.time(), "side": self.side, "method": self.command, "path": self.path}
        self.context.log({**request, **self.note, "token": "authorization" in self.headers})

    def log_message(self, *_: object) -> None:
        """The base class's own log; ours is the context's."""

    def version_string(self) -> str:
        return "model-hub"
