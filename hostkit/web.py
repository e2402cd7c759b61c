"""HTTP as a fetch needs it: redirects followed by hand, so that a token goes to its hub only, and links can be kept.

`requests` comes with the engine: this runs under the engine's Python.
"""

import email.utils
import os
import re
import socket
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import urllib3

# Corporate certificate authorities stand here; requests has a list of its own.
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_MUCH = 64 << 10
_LATER = (408, 425, 429, 500, 502, 503, 504)
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)


class NoGood(Exception):
    """This source will not give the file, however often it is asked; the message says why."""


class Trouble(Exception):
    """It may work later, or elsewhere. `wait_s`: how long the source asks to be left alone, `busy`: all of it."""

    def __init__(self, message: str, wait_s: float | None = None, busy: bool = False) -> None:
        super().__init__(message)
        self.wait_s, self.busy = wait_s, busy


@dataclass
class Reply:
    """An answer whose body is read in pieces. `total`: size of the whole file where the server says it."""

    response: requests.Response
    redirected: bool
    status: int = 0
    start: int = 0
    total: int | None = None
    ranged: bool = True

    def __post_init__(self) -> None:
        headers, self.status = self.response.headers, self.response.status_code
        found = _RANGE.fullmatch(headers.get("Content-Range", ""))
        if self.status == 206 and found:
            self.start, self.total = int(found[1]), int(found[3])
        elif self.status == 200 and headers.get("Content-Length", "").isdecimal():
            self.total = int(headers["Content-Length"])

    @property
    def url(self) -> str:
        return str(self.response.url)

    def read(self, count: int) -> bytes:
        try:
            return bytes(self.response.raw.read(count, decode_content=False))
        except (*_ERRORS, ValueError) as error:
            raise Trouble(short(error)) from None

    def abort(self) -> None:
        try:
            self.response.raw.shutdown()
        except (OSError, ValueError, RuntimeError):
            return  # it ended by itself

    def problem(self, what: str, by_link: bool) -> Exception:
        """What a status that is no success means. by_link: a link into a content network was not taken."""
        if self.status in _LATER:
            return Trouble(f"answers {self.status}", _wait_s(self.response.headers.get("Retry-After")), busy=True)
        if by_link:
            return Trouble(f"gives links that are answered with {self.status}")
        if self.status in (401, 403):
            remedy = "accept its licence there with your account, and name a file with your token: hub_token_file"
            return NoGood(f"lets nobody read {what} without permission ({self.status}); {remedy}")
        if self.status in (404, 410):
            return NoGood(f"has no {what}")
        if self.status == 416:
            return NoGood(f"has another size of {what}")
        return NoGood(f"answers {self.status} for {what}")

    def close(self) -> None:
        """The connection is kept when little is left to read."""
        if int(self.response.headers.get("Content-Length") or _MUCH) < _MUCH:
            self.response.raw.drain_conn()
            self.response.raw.release_conn()
        self.response.close()

    def __enter__(self) -> "Reply":
        return self

    def __exit__(self, *_: object) -> None:
        """One with nothing left to read has given its connection back; that of another one is closed."""
        self.response.close()


class _Adapter(requests.adapters.HTTPAdapter):
    """Connections whose kernel buffer holds so many bytes that nobody has read yet, and no more.

    By itself it grows to many MiB a connection where the reader is short of time, and all of it is lost with a process.
    SO_RCVBUF would do as well, but is cut to net.core.rmem_max, which is far too small for a long link.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        clamp = (socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, self._window)
        own = [*urllib3.connection.HTTPConnection.default_socket_options, clamp]
        super().init_poolmanager(*arguments, **options, socket_options=own)


class Client:
    """One connection after another, for one thread.

    silence_s: nothing comes for so long, and it is given up; window: bytes that may be on their way to it.
    """

    def __init__(self, silence_s: float, window: int) -> None:
        self._timeout = (min(15.0, silence_s), silence_s)
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(window))
        self._session.auth = _no_netrc
        if _SYSTEM_CERTIFICATES.exists() and not os.environ.get("REQUESTS_CA_BUNDLE"):
            self._session.verify = str(_SYSTEM_CERTIFICATES)

    def url(self, endpoint: str, *words: str) -> str:
        return "/".join([endpoint.rstrip("/"), *(urllib.parse.quote(word) for word in words)])

    def get(self, url: str, token: str | None, span: tuple[int, int] | None = None) -> Reply:
        """One request, no redirect. Raises Trouble when nobody answers."""
        headers = {"Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if span:
            headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        try:
            answer = self._session.get(url, headers=headers, timeout=self._timeout, stream=True, allow_redirects=False)
        except _ERRORS as error:
            raise Trouble(short(error)) from None
        return Reply(answer, redirected=False)

    def follow(self, url: str, token: str | None, span: tuple[int, int] | None = None) -> Reply:
        """The answer after all redirects; the token goes nowhere but to the first host. Raises Trouble."""
        first, redirected = url, False
        for _ in range(_MOST_REDIRECTS):
            reply = self.get(url, token if same_host(url, first) else None, span)
            if reply.status not in _REDIRECTS:
                reply.redirected = redirected
                return reply
            reply.close()
            redirected, url = True, urllib.parse.urljoin(url, reply.response.headers.get("Location", ""))
        raise Trouble("redirects for ever")


def short(error: BaseException) -> str:
    """The cause at the bottom, without URLs: links into a content network hold a signature."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    text = re.sub(r"(https?://|/)\S+", "...", str(error))
    return f"{type(error).__name__} {text}".strip()


def _no_netrc(request: Any) -> Any:
    return request


def same_host(one: str, other: str) -> bool:
    """Whether two URLs have scheme, host and port in common."""
    parts = [urllib.parse.urlsplit(url) for url in (one, other)]
    return parts[0][:2] == parts[1][:2]


def _wait_s(header: str | None) -> float | None:
    """Retry-After, in seconds or as a date (RFC 9110)."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None
