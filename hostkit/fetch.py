"""Brings the files of a checkpoint from its sources, many at once, and goes on where an earlier fetch was ended.

Several pieces of several files are under way at once. Threads do: receiving, writing and hashing leave the
interpreter's lock to others.
"""

import os
import shutil
import threading
import time
from collections.abc import Sequence

from hostkit import streams
from hostkit.events import Progress
from hostkit.partial import Partial
from hostkit.shelf import Shelf
from hostkit.sources import Source
from hostkit.streams import DiskFull, Hasher, Stream
from hostkit.ways import GivenUp, Limits

_HASHERS = 8
# Bytes of all streams together that a kill may take: received without a line in the journal, and not read yet.
_UNNOTED, _UNREAD = 16 << 20, 24 << 20
_SPARE = 1 << 30  # bytes to leave free
_RATE_OVER_S = 10.0
_TOLD = 100  # each hundredth of the time so far, once a second at the most


def fetch(
    partial: Partial, sources: dict[str, Sequence[Source]], count: int, limits: Limits, progress: Progress
) -> None:
    """All parts of `partial` are there and right afterwards. `count`: streams. Raises GivenUp, DiskFull, OSError."""
    shelf = Shelf(partial, sources, count, limits)
    if not shelf.wanted:
        return
    _refuse_full_disk(partial, shelf.left)
    for wanted in shelf.wanted:
        partial.open(wanted.part)
    receivers = [Stream(shelf, min(2 << 20, _UNNOTED // count), max(1 << 20, _UNREAD // count)) for _ in range(count)]
    hashers = [Hasher(shelf) for _ in range(min(_HASHERS, os.cpu_count() or 1))]
    threads = [*streams.started(*receivers, *hashers), *_started(lambda: _sync(shelf))]
    _watch(shelf, receivers, progress)
    for stream in receivers:
        stream.stop()
    for thread in threads:
        thread.join()
    if isinstance(shelf.failure, DiskFull):
        raise _full(partial, shelf.left)
    if shelf.failure:
        raise shelf.failure


def _refuse_full_disk(partial: Partial, needed: int) -> None:
    if shutil.disk_usage(partial.folder).free < needed + min(_SPARE, needed):
        raise _full(partial, needed)


def _full(partial: Partial, needed: int) -> DiskFull:
    free, place = shutil.disk_usage(partial.folder).free, partial.folder.parent
    return DiskFull(f"{needed / 1e9:.3f} GB are missing, {free / 1e9:.3f} GB are free on the disk of {place}")


def _started(body: object) -> list[threading.Thread]:
    thread = threading.Thread(target=body, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return [thread]


def _sync(shelf: Shelf) -> None:
    """Flush every few seconds."""
    try:
        while not _over_within(shelf, shelf.limits.sync_s):
            shelf.partial.sync()
    except OSError as error:
        shelf.fail(DiskFull() if error.errno in streams.FULL else error)


def _over_within(shelf: Shelf, seconds: float) -> bool:
    with shelf.changed:
        return shelf.changed.wait_for(shelf.is_over, seconds)


def _watch(shelf: Shelf, receivers: list[Stream], progress: Progress) -> None:
    """Tell how far it is, wake streams that got stuck, and end it when nothing comes from anywhere."""
    rate, began, told = _Rate(), time.monotonic(), 0.0
    while not _over_within(shelf, 1.0):
        for stream in receivers:
            stream.wake()
        silent_s = time.monotonic() - shelf.grown
        if silent_s > shelf.limits.patience_s:
            shelf.fail(GivenUp(f"nothing came for {silent_s:.0f} s: {shelf.last_trouble or 'no source answers'}"))
        elapsed_s = time.monotonic() - began
        if elapsed_s - told >= elapsed_s / _TOLD:
            told = elapsed_s
            _tell(shelf, rate, progress)


class _Rate:
    """Bytes per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def of(self, got: int) -> float:
        now = time.monotonic()
        self._seen = [(at, was) for at, was in self._seen if now - at < _RATE_OVER_S] + [(now, got)]
        (began, first), (at, last) = self._seen[0], self._seen[-1]
        return (last - first) / (at - began) if at > began else 0.0


def _tell(shelf: Shelf, rate: _Rate, progress: Progress) -> None:
    speed, left = rate.of(shelf.got), shelf.left
    there = shelf.total - left
    whole = sum(part.whole for part in shelf.partial.parts)
    message = f"{there / 1e9:.1f} of {shelf.total / 1e9:.1f} GB, {speed / 1e6:.0f} MB/s, "
    message += f"{whole} of {len(shelf.partial.parts)} files whole"
    if not speed and shelf.last_trouble:
        message += f"; {shelf.last_trouble}"
    eta_s = left / speed if speed else None
    progress.tell("checkpoint", message, percent=100 * there / max(1, shelf.total), eta_s=eta_s)
