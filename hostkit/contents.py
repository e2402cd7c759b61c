"""What a file must hold, and whether it does: by sha256, or by the git blob id that the hub gives for small files."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

# One file of a manifest: size (bytes), and sha256 or git_blob_id (hex).
Expected = Mapping[str, Any]
_BLOCK = 512 << 10


def hasher(expected: Expected) -> Any:
    """A fresh hash object for a file that is to hold what is expected."""
    if expected.get("sha256"):
        return hashlib.sha256()
    # git names a file by this, and promises no secrecy with it (gitformat-pack(5)).
    return hashlib.sha1(f"blob {expected['size']}\0".encode(), usedforsecurity=False)


def digest(expected: Expected) -> str:
    return str(expected.get("sha256") or expected["git_blob_id"])


def problem(path: Path, expected: Expected, told: Callable[[int], None] = lambda _: None, drop: bool = False) -> str:
    """How the file differs from what is expected, "" where it does not.

    told: called with each number of bytes that was read; drop: do not leave the file in the page cache.
    """
    try:
        size = path.stat().st_size
    except OSError:
        return "is missing"
    if size != expected["size"]:
        return f"has {size} bytes instead of {expected['size']}"
    return "" if _hashed(path, expected, told, drop) == digest(expected) else "has other content than the manifest says"


def problems(
    paths: Mapping[Path, Expected], told: Callable[[int], None] = lambda _: None, drop: bool = False
) -> Iterator[tuple[Path, str]]:
    """Each path with its problem or "", as they are known; one thread a core."""
    largest_first = sorted(paths, key=lambda path: -int(paths[path]["size"]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(problem, path, paths[path], told, drop): path for path in largest_first}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def _hashed(path: Path, expected: Expected, told: Callable[[int], None], drop: bool) -> str:
    found, buffer = hasher(expected), memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(buffer[:count])
            told(count)
            if drop:
                os.posix_fadvise(file.fileno(), 0, file.tell(), os.POSIX_FADV_DONTNEED)
    return str(found.hexdigest())
