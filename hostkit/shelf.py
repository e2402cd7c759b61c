"""What there is to fetch, handed out to the streams piece by piece; and what to do when a source fails."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hostkit.partial import Partial
from hostkit.sources import NoGood, Source, Trouble
from hostkit.ways import GivenUp, Limits, Wanted

# Pieces get smaller towards the end, so that all streams end together; within these bounds, in bytes.
_LEAST, _MOST = 8 << 20, 256 << 20


@dataclass
class Piece:
    """Bytes of a file for one stream: from `start` to `end`."""

    wanted: Wanted
    source: Source
    start: int
    end: int


class Shelf:
    """Locked by its condition `changed`, which is told of all that a waiting thread may wait for.

    Raises GivenUp when there is a file without a source.
    """

    def __init__(self, partial: Partial, sources: dict[str, Sequence[Source]], streams: int, limits: Limits) -> None:
        self.partial, self.limits, self._streams = partial, limits, streams
        self.changed = threading.Condition()
        self.wanted = [Wanted(part, list(sources[part.name])) for part in partial.parts if not part.whole]
        lost = [wanted.part.name for wanted in self.wanted if not wanted.sources]
        if lost:
            raise GivenUp(f"{lost[0]} and {len(lost) - 1} others are nowhere, and hub_mirrors names no source")
        self.total = sum(part.size for part in partial.parts)
        self.got = 0
        self.grown = time.monotonic()
        self.last_trouble = ""
        self.failure: Exception | None = None
        self._busy_until: dict[str, float] = {}

    @property
    def left(self) -> int:
        """Bytes that are still to come."""
        return sum(wanted.part.left for wanted in self.wanted)

    def is_over(self) -> bool:
        return self.failure is not None or all(wanted.part.whole for wanted in self.wanted)

    def fail(self, failure: Exception) -> None:
        with self.changed:
            self.failure = self.failure or failure
            self.changed.notify_all()

    def take(self) -> Piece | None:
        """The next piece, waiting for one; None when all is over."""
        with self.changed:
            while not self.is_over():
                piece = self._piece(time.monotonic())
                if piece:
                    return piece
                self.changed.wait(0.2)
        return None

    def _piece(self, now: float) -> Piece | None:
        for wanted in self.wanted:
            if self._is_ready(wanted, now):
                for start, end in wanted.part.taken.missing(wanted.part.size):
                    return self._cut(wanted, start, end)
        return None

    def _is_ready(self, wanted: Wanted, now: float) -> bool:
        if wanted.part.whole or not wanted.sources:
            return False
        if now < max(wanted.not_before, self._busy_until.get(wanted.source.name, 0.0)):
            return False
        return wanted.ranged is True or not wanted.streams  # until it is known, one stream finds out

    def _cut(self, wanted: Wanted, start: int, end: int) -> Piece:
        if wanted.ranged is not False:
            share = self.left // (2 * self._streams)
            end = min(end, start + min(_MOST, max(_LEAST, share)))
        wanted.part.taken.add(start, end)
        wanted.streams += 1
        return Piece(wanted, wanted.source, start, end)

    def opened(self, piece: Piece, ranged: bool) -> None:
        """The source has answered: now it is known whether others may get other parts meanwhile."""
        with self.changed:
            if piece.wanted.asks(piece.source):
                piece.wanted.ranged = ranged
            if not ranged:  # the rest comes anyway; what another stream is about to write is left to it
                taken, size = piece.wanted.part.taken, piece.wanted.part.size
                piece.end = next((end for start, end in taken.missing(size) if start == piece.end), piece.end)
                taken.add(piece.start, piece.end)
            self.changed.notify_all()

    def put(self, piece: Piece, start: int, end: int) -> None:
        """These bytes of the piece are with the kernel."""
        self.partial.note(piece.wanted.part, start, end)
        with self.changed:
            self.grown = time.monotonic()
            self.got += end - start
            piece.wanted.part.written.add(start, end)
            piece.wanted.part.taken.add(start, end)
            piece.wanted.givers.add(piece.source.name)
            piece.wanted.failures = 0
            piece.start = max(piece.start, end)
            self.changed.notify_all()

    def give_back(self, piece: Piece) -> None:
        """The stream is done with the piece; what it did not get is there to be taken again."""
        with self.changed:
            piece.wanted.streams -= 1
            part = piece.wanted.part
            for start, end in list(part.written.missing(piece.end)):
                part.taken.remove(max(start, piece.start), end)
            self.changed.notify_all()

    def refused(self, piece: Piece, problem: NoGood) -> None:
        with self.changed:
            if any(source is piece.source for source in piece.wanted.sources):
                piece.wanted.refuse(piece.source, str(problem))

    def troubled(self, piece: Piece, trouble: Trouble) -> None:
        """Try again after a pause; elsewhere, when it has failed too often there."""
        with self.changed:
            self.last_trouble = f"{piece.source.name} {trouble}"
            wanted = piece.wanted
            if not wanted.asks(piece.source):
                return
            wanted.failures += 1
            pause = min(self.limits.longest_pause_s, self.limits.pause_s * 2 ** (wanted.failures - 1))
            until = time.monotonic() + min(trouble.wait_s or pause, self.limits.patience_s / 2)
            if trouble.busy:
                self._busy_until[piece.source.name] = until
            else:
                wanted.not_before = until
            wanted.failed(trouble.busy)

    def wrong(self, wanted: Wanted) -> None:
        """All bytes came, and they are not those of the manifest: fetched again, from elsewhere where that is possible.

        Raises GivenUp.
        """
        with self.changed:
            self.partial.drop(wanted.part)
            wanted.was_wrong()
            self.changed.notify_all()
