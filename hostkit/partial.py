"""A checkpoint on its way: its files beside their place, sparse until their bytes come, with a journal of those.

`<revision>.incomplete` takes the place of nothing until all of it is whole. A file is as long as it will be from the
first moment, and not preallocated: its blocks say to anyone how much of it is there.
"""

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostkit import atomic, contents, fetched
from hostkit.contents import Expected
from hostkit.spans import Spans
from hostkit.stamps import identity

SUFFIX = ".incomplete"
OWN = ".fetch"


class Busy(Exception):
    """Another process fetches into the same folder."""


@dataclass
class Part:
    """One file. `written` are bytes that the kernel has, `taken` also those that a stream is about to get.

    `seen` is its identity (size, mtime, inode) when its content was found right.
    """

    name: str
    path: Path
    expected: Expected
    written: Spans = field(default_factory=Spans)
    taken: Spans = field(default_factory=Spans)
    hashed: int = 0
    hash: Any = None
    is_being_hashed: bool = False
    whole: bool = False
    handle: int = -1
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hash = contents.hasher(self.expected)
        self.taken = Spans(self.written)

    @property
    def size(self) -> int:
        return int(self.expected["size"])

    @property
    def left(self) -> int:
        """Bytes that are not there yet."""
        return 0 if self.whole else self.size - self.written.total

    def forget(self) -> None:
        """Nothing of it counts any more."""
        self.written, self.taken, self.hashed = Spans(), Spans(), 0
        self.hash = contents.hasher(self.expected)


class Partial:
    """The files of `folder`.incomplete, with what an earlier fetch left of them. Close it when done."""

    def __init__(self, folder: Path, files: dict[str, Expected]) -> None:
        """Raises Busy, OSError."""
        self.folder = folder.with_name(folder.name + SUFFIX)
        (self.folder / OWN).mkdir(parents=True, exist_ok=True)
        self._lock_file = (self.folder / OWN / "lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock_file.close()
            raise Busy(f"{self.folder} is being filled by another process") from None
        known = fetched.read(self.folder / OWN / "journal")
        self.parts = [self._part(name, expected, known) for name, expected in files.items()]
        self.journal = fetched.Journal(self.folder / OWN / "journal", dict(map(_known, self.parts)))
        self._unsynced = {part.name for part in self.parts}
        self._guard = threading.Lock()

    def _part(self, name: str, expected: Expected, known: dict[str, fetched.Known]) -> Part:
        part = Part(name, self.folder / name, expected)
        found = known.get(name)
        if found and found.digest == contents.digest(expected) and _is_a_file_of(part.path, part.size):
            part.written, part.seen = found.spans, identity(part.path)
            part.whole = found.checked == (part.seen["mtime_ns"], part.seen["inode"])
        part.__post_init__()
        return part

    def open(self, part: Part) -> None:
        """Make its file ready for bytes; what is there and does not count is made a hole."""
        part.path.parent.mkdir(parents=True, exist_ok=True)
        if not part.written.total:
            part.path.unlink(missing_ok=True)  # another link of an adopted file would be written to
        part.handle = os.open(part.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.ftruncate(part.handle, part.size)

    def note(self, part: Part, start: int, end: int) -> None:
        """The kernel has these bytes of the file."""
        with self._guard:
            self._unsynced.add(part.name)
        self.journal.span(part.name, start, end)

    def note_whole(self, part: Part) -> None:
        part.whole, part.seen = True, identity(part.path)
        self.journal.checked(part.name, part.seen["mtime_ns"], part.seen["inode"])

    def drop(self, part: Part) -> None:
        """What came was wrong: nothing of it counts, and its blocks are given back."""
        self.journal.dropped(part.name, contents.digest(part.expected))
        os.ftruncate(part.handle, 0)
        os.ftruncate(part.handle, part.size)
        part.forget()

    def sync(self) -> None:
        """Flush what came since the last time, and say so in the journal: a power cut takes none of it."""
        with self._guard:
            names, self._unsynced = self._unsynced, set()
            position = self.journal.position()
        for part in self.parts:
            if part.name in names and part.path.exists():
                _flush(part.path)
        self.journal.synced(position)

    def finish(self) -> None:
        """All is whole: flush it, and take away what only a fetch needs."""
        self.sync()
        shutil.rmtree(self.folder / OWN)
        for folder in {self.folder, *(part.path.parent for part in self.parts)}:
            atomic.sync_folder(folder)

    def close(self) -> None:
        for part in self.parts:
            if part.handle >= 0:
                os.close(part.handle)
                part.handle = -1
        self.journal.close()
        self._lock_file.close()


def _known(part: Part) -> tuple[str, fetched.Known]:
    checked = (part.seen["mtime_ns"], part.seen["inode"]) if part.whole else None
    return part.name, fetched.Known(contents.digest(part.expected), part.written, checked)


def _is_a_file_of(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def partial(folder: Path, files: dict[str, Expected]) -> Iterator[Partial]:
    """The Partial of the folder, closed in the end. Raises Busy, OSError."""
    opened = Partial(folder, files)
    try:
        yield opened
    finally:
        opened.close()
