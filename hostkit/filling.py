"""Fills a new environment from its lock, and tells how far it is."""

import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from hostkit import atomic, uv
from hostkit.events import Progress

_PACKAGE = re.compile(r"^[A-Za-z0-9]", re.MULTILINE)
_ADDRESS = re.compile(r"@ https?://\S*/([^/\s]+\.whl)")


def fill(program: Path, partial: Path, request: dict[str, Any], progress: Progress) -> None:
    """Have the environment hold exactly what the lock says, byte-compiled. Raises uv.Failed.

    Checks come after it: beside it, imports without bytecode cost more than was won (87 s of CPU for 63, two cores).
    """
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(partial, request, progress, done))
    watcher.start()
    try:
        uv.run(program, *_sync(partial, request), cache=cache(partial))
    finally:
        done.set()
        watcher.join()
    shutil.rmtree(cache(partial), ignore_errors=True)


def _sync(partial: Path, request: dict[str, Any]) -> list[str]:
    words = ["pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode", _lock(partial, request)]
    words += ["--python", str(partial / "bin/python"), *uv.from_bundle(request)]
    if request["find_links"] and not request.get("bundle"):
        words += ["--find-links", request["find_links"]]
    return words


def cache(partial: Path) -> Path:
    """uv's cache, beside the new folder: on the same file system files are linked and not copied."""
    return partial.with_suffix(".cache")


def _lock(partial: Path, request: dict[str, Any]) -> str:
    """The lock; with a bundle, a copy in which wheels with an address of their own are those of the bundle."""
    if not request.get("bundle"):
        return str(request["lock"])
    text = Path(request["lock"]).read_text(encoding="utf-8")
    wheels = f"@ file://{request['bundle']}/wheels/"
    copy = cache(partial) / "bundle.lock.txt"
    atomic.write(copy, _ADDRESS.sub(lambda found: wheels + found[1], text))
    return str(copy)


def _watch(partial: Path, request: dict[str, Any], progress: Progress, done: threading.Event) -> None:
    """Tell how many packages are fetched: adding up their files would cost an eighth of a core (measured)."""
    total = len(_PACKAGE.findall(Path(request["lock"]).read_text(encoding="utf-8")))
    started = time.monotonic()
    while not done.wait(2):
        fetched = _fetched(cache(partial))
        percent = min(99.0, 100 * fetched / max(1, total))
        eta_s = (time.monotonic() - started) * (100 - percent) / percent if percent > 5 else None
        progress.tell("packages", f"{fetched} of {total} fetched", percent=percent, eta_s=eta_s)


def _fetched(folder: Path) -> int:
    """Wheels that uv has unpacked: one folder each (uv 0.13, archive-v0)."""
    return sum(len(os.listdir(archive)) for archive in folder.glob("archive-v*"))
