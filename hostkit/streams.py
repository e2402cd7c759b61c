"""The threads of a fetch: streams that receive pieces, and hashers that follow them and judge each file."""

import errno
import os
import threading
import time
from dataclasses import dataclass

from hostkit import contents
from hostkit.shelf import Piece, Shelf
from hostkit.sources import Body, NoGood, Trouble
from hostkit.ways import Wanted
from hostkit.web import Client

_BLOCK = 512 << 10  # bytes that are received at once
_BEHIND = 4 << 20  # a hasher goes to work for so many bytes, or for the end of a file
FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFull(Exception):
    """There is no room for the rest."""


@dataclass
class Stream:
    """Receives one piece after another. noted: bytes between two lines of the journal; window: see web.Client."""

    shelf: Shelf
    noted: int
    window: int
    body: Body | None = None
    since: float = 0.0

    def run(self) -> None:
        try:
            client = Client(self.shelf.limits.silence_s, self.window)
            while piece := self.shelf.take():
                self._work(client, piece)
        except OSError as error:
            full = error.errno in FULL
            self.shelf.fail(DiskFull() if full else error)
        except Exception as error:  # whoever waits for the fetch must hear of it
            self.shelf.fail(error)

    def _work(self, client: Client, piece: Piece) -> None:
        part = piece.wanted.part
        try:
            with piece.source.open(client, part.name, part.size, (piece.start, piece.end)) as body:
                self.shelf.opened(piece, body.ranged)
                self.body, self.since = body, time.monotonic()
                self._receive(piece, body)
        except NoGood as problem:
            self.shelf.refused(piece, problem)
        except Trouble as trouble:
            self.shelf.troubled(piece, trouble)
        finally:
            self.body = None
            self.shelf.give_back(piece)

    def _receive(self, piece: Piece, body: Body) -> None:
        """Bytes before the piece, of a source that cannot begin in the middle, are read and left."""
        at, noted, handle = body.start, piece.start, piece.wanted.part.handle
        try:
            while at < piece.end and self.shelf.failure is None:
                data = body.read(min(_BLOCK, piece.end - at))
                self.since = time.monotonic()
                if not data:
                    raise Trouble("ends too early")
                _write(handle, data[max(0, piece.start - at) :], max(at, piece.start))
                at += len(data)
                if at - noted >= self.noted:
                    self.shelf.put(piece, noted, at)
                    noted = at
        finally:
            if at > noted:
                self.shelf.put(piece, noted, at)

    def stop(self) -> None:
        """Wait for nothing any more."""
        body = self.body
        if body is not None:
            body.abort()

    def wake(self) -> None:
        """End a read that brings next to nothing."""
        if time.monotonic() - self.since > self.shelf.limits.slow_s:
            self.since = time.monotonic()
            self.stop()


def _write(handle: int, data: bytes, at: int) -> None:
    written = os.pwrite(handle, data, at)
    while written < len(data):
        written += os.pwrite(handle, data[written:], at + written)


class Hasher:
    """Reads what was written, while it is in the page cache, file by file in order, and judges those that are whole."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._buffer = memoryview(bytearray(_BLOCK))

    def run(self) -> None:
        try:
            while wanted := self._next():
                self._follow(wanted)
        except Exception as error:  # whoever waits for the fetch must hear of it
            self._shelf.fail(error)

    def _next(self) -> Wanted | None:
        with self._shelf.changed:
            while not self._shelf.is_over():
                for wanted in self._shelf.wanted:
                    if _is_worth_it(wanted):
                        wanted.part.is_being_hashed = True
                        return wanted
                self._shelf.changed.wait(0.5)
        return None

    def _follow(self, wanted: Wanted) -> None:
        part = wanted.part
        with self._shelf.changed:
            until = part.written.prefix
        while part.hashed < until and self._shelf.failure is None:
            buffer = self._buffer[: until - part.hashed]
            count = os.preadv(part.handle, [buffer], part.hashed)
            if not count:
                raise OSError(errno.EIO, f"{part.path} is shorter than it was")
            part.hash.update(buffer[:count])
            part.hashed += count
        if part.hashed == part.size:
            self._judge(wanted)
        part.is_being_hashed = False

    def _judge(self, wanted: Wanted) -> None:
        part = wanted.part
        if part.hash.hexdigest() != contents.digest(part.expected):
            self._shelf.wrong(wanted)
            return
        self._shelf.partial.note_whole(part)
        with self._shelf.changed:
            self._shelf.grown = time.monotonic()
            self._shelf.changed.notify_all()


def _is_worth_it(wanted: Wanted) -> bool:
    part = wanted.part
    if part.whole or part.is_being_hashed:
        return False
    prefix = part.written.prefix
    return prefix == part.size or prefix - part.hashed >= _BEHIND


def started(*bodies: Stream | Hasher) -> list[threading.Thread]:
    threads = [threading.Thread(target=body.run, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    return threads
