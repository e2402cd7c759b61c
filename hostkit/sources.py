"""Where a file's bytes come from: a model hub (or a mirror that speaks as it does), or a folder on this host."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hostkit.web import Client, NoGood, Reply, Trouble, same_host

__all__ = ["Body", "Folder", "Hub", "NoGood", "Source", "Trouble"]


class Body(Protocol):
    """Bytes of a file from `start` on. `ranged` says whether a part could be asked for."""

    start: int
    ranged: bool

    def read(self, count: int) -> bytes:
        """Up to `count` bytes; b"" at the end. Raises Trouble."""

    def abort(self) -> None:
        """End a read that another thread waits in."""


class Source(Protocol):
    """One place that files can be had from; it may be asked from many threads, each with a client of its own."""

    name: str

    def open(self, client: Client, file: str, size: int, span: tuple[int, int]) -> Any:
        """A context with the Body of a span of the file. Raises NoGood, Trouble."""


@dataclass
class Hub:
    """A repository at a revision, on a hub. Links into its content network are kept until they expire."""

    endpoint: str
    repository: str
    revision: str
    token: str | None = field(default=None, repr=False)
    _links: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.endpoint

    @contextmanager
    def open(self, client: Client, file: str, size: int, span: tuple[int, int]) -> Iterator[Body]:
        reply = self._reply(client, file, span)
        with reply:
            yield _part(reply, self.endpoint, size, span)

    def _reply(self, client: Client, file: str, span: tuple[int, int]) -> Reply:
        known = self._links.get(file)
        if known:
            reply = client.get(known, self.token if same_host(known, self.endpoint) else None, span)
            if reply.status in (200, 206):
                return reply
            reply.close()  # expired, most likely: ask the hub for another one
            self._links.pop(file, None)  # one step, and so safe among threads
        url = client.url(self.endpoint, self.repository, "resolve", self.revision, file)
        reply = client.follow(url, self.token, span)
        if reply.status not in (200, 206):
            reply.close()
            raise reply.problem(f"{self.repository}@{self.revision}/{file}", known is not None or reply.redirected)
        if reply.redirected:
            self._links[file] = reply.url
        return reply


def _part(reply: Reply, name: str, size: int, span: tuple[int, int]) -> Reply:
    """The reply, once it is clear that it holds what was asked for. Raises NoGood, Trouble."""
    if reply.total is not None and reply.total != size:
        raise NoGood(f"has {reply.total} bytes instead of {size}")
    reply.ranged = reply.status == 206 or span == (0, size)
    if reply.status == 206 and reply.start != span[0]:
        raise Trouble(f"sent bytes from {reply.start} on instead of {span[0]}")
    return reply


@dataclass
class Folder:
    """Files under a folder of this host, which are read and never changed."""

    name: str
    paths: dict[str, Path]

    @contextmanager
    def open(self, client: Client, file: str, size: int, span: tuple[int, int]) -> Iterator[Body]:
        path = self.paths.get(file)
        if path is None:
            raise NoGood("is not there")
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise NoGood(f"cannot be read ({error.strerror})") from None
        try:
            if os.fstat(handle).st_size != size:
                raise NoGood(f"has {os.fstat(handle).st_size} bytes instead of {size}")
            yield _Local(handle, span[0])
        finally:
            os.close(handle)


class _Local:
    ranged = True

    def __init__(self, handle: int, start: int) -> None:
        self.start = self._at = start
        self._handle = handle

    def read(self, count: int) -> bytes:
        try:
            data = os.pread(self._handle, count, self._at)
        except OSError as error:
            raise Trouble(f"cannot be read ({error.strerror})") from None
        self._at += len(data)
        return data

    def abort(self) -> None:
        """A read of a local file cannot be ended."""
