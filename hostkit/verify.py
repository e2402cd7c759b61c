"""Whether a checkpoint on this host is what it should be, by every byte. Nothing here changes a file of it."""

import time
from pathlib import Path
from typing import Any

from hostkit import client, contents, events, ours, release, stamps, systemd
from hostkit.events import Progress, Result

_STARTS_WITHIN_S = 3600


def deep(request: dict[str, Any], progress: Progress) -> Result:
    """Every byte against the hashes of the last full check; the page cache is left as it was.

    request: {"folder", "behind_servers": wait until those that are starting are ready}.
    """
    folder = Path(request["folder"])
    if request.get("behind_servers"):
        _wait_for_servers(progress)
    stamp = stamps.read(folder)
    if stamp is None or "manifest" not in stamp:  # one of an earlier playbook has none
        return Result(events.REFUSED, f"{folder} was never checked: run the playbook")
    damaged = damage(folder, stamp["manifest"], progress, drop=True)
    if not damaged or stamps.read(folder) != stamp:  # replaced meanwhile, and checked then
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


def _wait_for_servers(progress: Progress) -> None:
    """A start reads the same files from the same disk, and has somebody waiting for it."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline and (
        starting := [name for name, unit in ours.units().items() if _starts(name, unit)]
    ):
        progress.tell("waiting", f"{starting[0]} starts")
        time.sleep(5)


def _starts(service: str, unit: dict[str, Any]) -> bool:
    if systemd.show(service)[service].active not in ("active", "activating"):
        return False
    ready = unit.get("checks", {}).get("ready", "/health")
    return client.status(client.Server(release.base_url(unit)), ready, 5.0) != 200


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
