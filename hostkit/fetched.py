"""The journal of a fetch: which bytes are on disk, whatever ends the process or the machine.

A line is written as soon as bytes are handed to the kernel: they outlive the process. After another boot a line counts
only when a `synced` line says that its bytes had been flushed to the disk, which happens every few seconds.
"""

import contextlib
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from hostkit import atomic, intent
from hostkit.spans import Spans

_SYNCED = re.compile(r"synced (\d+)")


@dataclass
class Known:
    """What the journal knows of one file; `checked` is its identity (mtime in ns, inode) when its hash was right."""

    digest: str
    spans: Spans = field(default_factory=Spans)
    checked: tuple[int, int] | None = None


def read(path: Path) -> dict[str, Known]:
    """What counts, by name of the file. A line that was cut off, or that nobody can read, counts for nothing."""
    with contextlib.suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        if lines and lines[0] != f"boot {intent.boot_id()}":
            lines = lines[: _synced(lines)]
        return _known(lines)
    return {}


def _synced(lines: list[str]) -> int:
    return max((int(found[1]) for found in map(_SYNCED.fullmatch, lines) if found), default=0)


def _known(lines: list[str]) -> dict[str, Known]:
    found: dict[str, Known] = {}
    for line in lines[1:]:
        with contextlib.suppress(ValueError, KeyError):
            what, value, *rest = line.split(" ", 3)
            match what:
                case "file":
                    found[" ".join(rest)] = Known(value)
                case "span":
                    found[" ".join(rest[1:])].spans.add(int(value), int(rest[0]))
                case "checked":
                    found[" ".join(rest[1:])].checked = int(value), int(rest[0])
    return found


class Journal:
    """Writes the journal anew from what is known, then a line at a time. Lines are single writes, from any thread."""

    def __init__(self, path: Path, known: dict[str, Known]) -> None:
        lines = [f"boot {intent.boot_id()}"]
        for name, one in known.items():
            lines.append(f"file {one.digest} {name}")
            lines += [f"span {start} {end} {name}" for start, end in one.spans]
            lines += [f"checked {one.checked[0]} {one.checked[1]} {name}"] if one.checked else []
        atomic.write(path, "\n".join(lines) + "\n")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._lines = len(lines)
        self._lock = threading.Lock()

    def span(self, name: str, start: int, end: int) -> None:
        self._append(f"span {start} {end} {name}")

    def checked(self, name: str, mtime_ns: int, inode: int) -> None:
        self._append(f"checked {mtime_ns} {inode} {name}")

    def dropped(self, name: str, digest: str) -> None:
        """Nothing of the file counts any more."""
        self._append(f"file {digest} {name}")

    def position(self) -> int:
        """How many lines there are; for `synced`, when what they speak of was flushed."""
        return self._lines

    def synced(self, position: int) -> None:
        self._append(f"synced {position}")
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, line: str) -> None:
        with self._lock:
            os.write(self._file, f"{line}\n".encode())
            self._lines += 1
