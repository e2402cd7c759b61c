"""Whether a checkpoint on this host is what it should be, by every byte. Nothing here changes a file of it."""

import time
from pathlib import Path
from typing import Any

from hostkit import contents, events, stamps
from hostkit.events import Progress, Result


def deep(request: dict[str, Any], progress: Progress) -> Result:
    """request: {"folder"}. Every byte against the hashes of the last full check; the page cache is left as it was."""
    folder = Path(request["folder"])
    stamp = stamps.read(folder)
    if stamp is None:
        return Result(events.REFUSED, f"{folder} was never checked: run the playbook")
    damaged = damage(folder, stamp["manifest"], progress, drop=True)
    if not damaged:
        return Result(events.OK, f"{folder}: {len(stamp['manifest'])} files, every byte as it should be")
    stamps.remove(folder)
    what = "; ".join(f"{folder}/{name} {problem}" for name, problem in damaged.items())
    remedy = "run the playbook: it fetches these files again; a server that runs read them when it started"
    return Result(events.REFUSED, f"the checkpoint is damaged: {what}; {remedy}")


def damage(folder: Path, files: dict[str, Any], progress: Progress, drop: bool = False) -> dict[str, str]:
    """The files that are not as expected, with what is wrong; all cores hash. Tells how far it is."""
    counter = _Counter(sum(file["size"] for file in files.values()), progress)
    found = contents.problems({folder / name: expected for name, expected in files.items()}, counter.add, drop)
    return {str(path.relative_to(folder)): problem for path, problem in found if problem}


class _Counter:
    """Tells, once a second, how many bytes were read; asked from several threads, it may miss a few."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total, self._progress, self._done = total, progress, 0
        self._began = self._told = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._told < 1.0:
            return
        self._told = now
        rate = self._done / (now - self._began)
        message = f"{self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB checked, {rate / 1e6:.0f} MB/s"
        percent, eta_s = 100 * self._done / max(1, self._total), (self._total - self._done) / rate
        self._progress.tell("checkpoint", message, percent=percent, eta_s=eta_s)
