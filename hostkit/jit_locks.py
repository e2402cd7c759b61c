"""Lock files in the caches of compiled kernels that nobody holds any more: left by a server that was killed.

A build waits for as long as such a file exists, whoever made it (torch.utils.file_baton); others only lock it, and do
not mind. So what no process has open is taken away before each start.
"""

import contextlib
import os
from pathlib import Path

from hostkit import paths


def sweep(cache: Path | None = None) -> list[str]:
    """Remove stale lock files below the cache, or below all caches; returns what went."""
    found = [path for path in (cache or paths.CACHES).rglob("*lock") if _is_lock(path)]
    if not found:
        return []
    held = _open_files()
    stale = [path for path in found if _identity(path) not in held]
    for path in stale:
        path.unlink(missing_ok=True)
    return [str(path) for path in stale]


def _is_lock(path: Path) -> bool:
    named = path.name == "lock" or path.suffix == ".lock" or path.name == ".lock"
    return named and path.is_file() and not path.is_symlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino)


def _open_files() -> set[tuple[int, int] | None]:
    """(device, inode) of every file that a process has open: of those of processes that can be looked into."""
    found: set[tuple[int, int] | None] = {None}
    for process in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            for descriptor in os.scandir(process):
                with contextlib.suppress(OSError):
                    info = os.stat(descriptor.path)
                    found.add((info.st_dev, info.st_ino))
    return found
