"""HTTP as uvicorn speaks it: JSON, event streams, and a line in the log for each request."""

from __future__ import annotations

import json
import secrets
import select
import socketserver
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, MSG_PEEK, socket
from typing import Any
from urllib.parse import urlsplit

from sandbox.simulated.engine.log import log_uvicorn

# The real engine lets these through without its API key, for probes.
OPEN = ("/health", "/ready", "/metrics")


class Reply(Exception):
    """Ends a request with a status and a body of JSON; raised where there is nothing else to say."""

    def __init__(self, status: int, body: Any = None) -> None:
        super().__init__(status)
        self.status, self.body = status, body


class Exchange(BaseHTTPRequestHandler):
    """One connection. `routes` answer a request by sending something or by raising Reply."""

    protocol_version = "HTTP/1.1"
    routes: dict[tuple[str, str], Callable[[Exchange], None]]
    api_key: str | None = None

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def json(self) -> dict[str, Any]:
        """The request's body. Raises Reply where it is no JSON object."""
        try:
            return dict(json.loads(self.body))
        except (ValueError, TypeError) as error:
            told = {"object": "error", "message": str(error), "type": "BadRequestError", "param": None, "code": 400}
            raise Reply(400, told) from None

    def is_gone(self) -> bool:
        """Tell whether the client has closed its connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, MSG_PEEK)

    def send(self, status: int, body: bytes = b"", kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if body:
            self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, value: Any, status: int = 200) -> None:
        self.send(status, json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode())

    def stream(self, events: Iterable[str]) -> None:
        """Send events as they come; the status goes out with the first."""
        for index, event in enumerate(events):
            if index == 0:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream; charset=utf-8")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        try:
            self._check_key(path)
            self._route(path)(self)
        except Reply as reply:
            if reply.body is None:
                self.send(reply.status)
            else:
                self.send_json(reply.body, reply.status)
        except ConnectionError:
            self.close_connection = True  # the client went away

    def _route(self, path: str) -> Callable[[Exchange], None]:
        if route := self.routes.get((self.command, path)):
            return route
        if any(known == path for _, known in self.routes):
            raise Reply(405, {"detail": "Method Not Allowed"})
        raise Reply(404, {"detail": "Not Found"})

    def _check_key(self, path: str) -> None:
        scheme, _, given = (self.headers.get("authorization") or "").partition(" ")
        if self.api_key is None or path.startswith(OPEN):
            return
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), self.api_key.encode()):
            raise Reply(401, {"error": "Unauthorized"})

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        address, port = self.client_address[:2]
        log_uvicorn(f'{address}:{port} - "{self.requestline}" {int(code)} {HTTPStatus(int(code)).phrase}')

    def log_message(self, *_: object) -> None:
        """Whatever else the base class would tell, uvicorn does not."""

    def version_string(self) -> str:
        return "uvicorn"


class Server(ThreadingHTTPServer):
    """A thread for each connection. Raises OSError where the port is taken. `beside` is kept open with it."""

    beside: socket | None = None
    request_queue_size = 2048  # uvicorn's backlog
    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[Exchange]) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own would ask the resolver for a name
