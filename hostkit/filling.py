"""Fills a new environment from its lock, and tells how far it is."""

import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from hostkit import atomic, uv
from hostkit.events import Progress

_ADDRESS = re.compile(r"@ https?://\S*/([^/\s]+\.whl)")


def fill(program: Path, partial: Path, request: dict[str, Any], progress: Progress) -> None:
    """Have the environment hold exactly what the lock says, byte-compiled. Raises uv.Failed."""
    words = ["pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode"]
    words += ["--python", str(partial / "bin/python"), *uv.from_bundle(request)]
    if request["find_links"] and not request.get("bundle"):
        words += ["--find-links", request["find_links"]]
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(partial, request["installed_gb"], progress, done))
    watcher.start()
    try:
        uv.run(program, *words, _lock(partial, request), cache=cache(partial))
    finally:
        done.set()
        watcher.join()
    shutil.rmtree(cache(partial), ignore_errors=True)


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


def _watch(partial: Path, expected_gb: float, progress: Progress, done: threading.Event) -> None:
    """Tell how much the disk has taken since: adding up the files themselves cost an eighth of a core (measured)."""
    started, before = time.monotonic(), _used_gb(partial)
    while not done.wait(2):
        size_gb = max(0.0, _used_gb(partial) - before)
        percent = min(99.0, 100 * size_gb / expected_gb)
        eta_s = (time.monotonic() - started) * (100 - percent) / percent if percent > 5 else None
        progress.tell("packages", f"{size_gb:.1f} of about {expected_gb:.1f} GB", percent=percent, eta_s=eta_s)


def _used_gb(partial: Path) -> float:
    return shutil.disk_usage(partial.parent).used / 1e9
