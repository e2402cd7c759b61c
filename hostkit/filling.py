"""Fills a new environment from its lock, and tells how far it is."""

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hostkit import atomic, uv
from hostkit.events import Progress

_PACKAGE = re.compile(r"^[A-Za-z0-9]", re.MULTILINE)
_ADDRESS = re.compile(r"@ https?://\S*/([^/\s]+\.whl)")


def fill(program: Path, partial: Path, request: dict[str, Any], progress: Progress) -> None:
    """Have the environment hold exactly what the lock says, without bytecode yet. Raises uv.Failed."""
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(partial, request, progress, done))
    watcher.start()
    try:
        uv.run(program, *_sync(partial, request), cache=cache(partial))
    finally:
        done.set()
        watcher.join()


@contextmanager
def compiling(program: Path, partial: Path, request: dict[str, Any]) -> Iterator[None]:
    """Byte-compile all that is installed, beside what the block does. Raises uv.Failed.

    Both take about as long, and neither needs the other. uv compiles in a second call, which finds nothing to install.
    """
    words = [*_sync(partial, request), "--offline", "--compile-bytecode"]
    with ThreadPoolExecutor(1) as pool:
        compiled = pool.submit(uv.run, program, *words, cache=cache(partial))
        yield
        compiled.result()
    shutil.rmtree(cache(partial), ignore_errors=True)


def _sync(partial: Path, request: dict[str, Any]) -> list[str]:
    words = ["pip", "sync", "--quiet", "--require-hashes", _lock(partial, request)]
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
