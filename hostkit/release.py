"""Releases on the host: reading them, putting their files into /etc, and which of them is active."""

import hashlib
import json
import shutil
import stat
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hostkit import atomic, ours, paths, started, systemd

# What a server gets to drain its requests where its release says nothing else (TimeoutStopSec).
DRAIN_S = 150


class Damaged(Exception):
    """A release on disk is not what its name and its own digests say."""


def load(digest: str) -> dict[str, Any]:
    """The release document. Raises Damaged when it is missing or a file in it was altered."""
    try:
        document: dict[str, Any] = json.loads((paths.RELEASES / digest / "release.json").read_text())
        wrong = [one["path"] for one in document["files"] if _sha256(one["text"]) != one["sha256"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Damaged(f"release {digest} cannot be read: {type(error).__name__} {error}") from None
    if wrong:
        raise Damaged(f"release {digest} was edited: {', '.join(wrong)}")
    return document


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_whole(digest: str) -> bool:
    """Whether the release can still be read and was not altered."""
    try:
        return bool(load(digest))
    except Damaged:
        return False


# What a release of an earlier playbook does not say.
_DEFAULT_GATES: dict[str, Any] = {
    "gpus_free_within_s": 90,
    "stuck_after_s": 300,
    "near_limit_within_s": 300,
    "echo": {"requests": 48, "concurrency": 12, "within_s": 60},
    "tok_s_floor": {},
    "log": {"expect": [], "forbid": [], "cuda_graph": False},
}


def gates(digest: str) -> dict[str, Any]:
    """What must hold before a start of the release is called good. Raises OSError, ValueError."""
    document: dict[str, Any] = json.loads((paths.RELEASES / digest / "gates.json").read_text())
    return {**_DEFAULT_GATES, **document}


def install(release: dict[str, Any], beside: Collection[str] = ()) -> None:
    """Write the release's files, take away what other releases and hands put there, and let systemd read it all.

    It stops no unit of this release, and none of those `beside`, which another one still serves with. A drop-in made by
    hand is kept under /var/lib/sglang/aside/.
    """
    for file in release["files"]:
        if not is_right(Path(file["path"]), file):
            atomic.write(Path(file["path"]), file["text"], mode=int(file["mode"], 8))
    for service in set(ours.services()) - set(services(release)) - set(beside):
        systemd.run("systemctl", "disable", "--quiet", "--now", service, check=False, timeout_s=DRAIN_S + 30)
        for path in (paths.UNITS / service, paths.CONFIG / f"{service.removesuffix('.service')}.env"):
            path.unlink(missing_ok=True)
    for service in services(release):
        _set_drop_ins_aside(service)
    systemd.run("systemctl", "daemon-reload")
    # One of an earlier playbook has none.
    others = [unit for unit in (paths.BOOT_UNIT, paths.CHECK_UNIT) if (paths.UNITS / unit).exists()]
    systemd.run("systemctl", "enable", "--quiet", paths.TARGET, *others, *services(release))
    if paths.CHECK_UNIT in others:  # from now on, and not from the next boot on
        systemd.run("systemctl", "start", "--no-block", paths.CHECK_UNIT)


def is_right(path: Path, file: dict[str, Any]) -> bool:
    """Whether the file needs no writing: a disk that is full must not keep a release from coming back."""
    if not path.is_file() or path.is_symlink():
        return False
    info = path.stat()
    return (f"{stat.S_IMODE(info.st_mode):o}", info.st_uid, info.st_gid) == (file["mode"], 0, 0) and (
        path.read_text(encoding="utf-8", errors="replace") == file["text"]
    )


def _set_drop_ins_aside(service: str) -> None:
    for path in started.drop_ins(service):
        aside = paths.STATE / "aside" / f"{time.strftime('%F_%H-%M-%S')}_{service}_{path.name}"
        aside.parent.mkdir(exist_ok=True)
        shutil.move(path, aside)


def routers(release: dict[str, Any]) -> list[dict[str, Any]]:
    """The units in front of workers; none where one server serves alone."""
    return [unit for unit in release["units"] if unit["role"] == "router"]


def workers(release: dict[str, Any]) -> list[dict[str, Any]]:
    """The units that compute, in the order of their start."""
    return [unit for unit in release["units"] if unit["role"] != "router"]


def ports(unit: dict[str, Any]) -> dict[str, int]:
    """All that the unit listens on, by what it is for; a release of an earlier playbook names one."""
    found: dict[str, int] = unit.get("ports") or {"port": unit["port"]}
    return found


def services(release: dict[str, Any]) -> list[str]:
    return [f"{unit['name']}.service" for unit in release["units"]]


def active() -> str | None:
    return paths.ACTIVE.readlink().name if paths.ACTIVE.is_symlink() else None


def set_active(digest: str) -> None:
    atomic.link(paths.ACTIVE, paths.RELEASES / digest)


def set_inactive() -> None:
    """Nothing is to run, at the next boot either."""
    systemd.run("systemctl", "disable", "--quiet", paths.TARGET, *ours.services(), check=False)
    paths.ACTIVE.unlink(missing_ok=True)


def mark_good(digest: str) -> None:
    atomic.link(paths.LAST_GOOD, paths.RELEASES / digest)


def last_good() -> str | None:
    return paths.LAST_GOOD.readlink().name if paths.LAST_GOOD.is_symlink() else None


def base_url(unit: dict[str, Any]) -> str:
    """Where the host itself reaches the unit. serving/plan.py says the same for the controller."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(unit["address"], unit["address"])  # noqa: S104 (asked, not bound)
    return f"http://{f'[{address}]' if ':' in address else address}:{unit['port']}"
