"""The cgroup of a machine: it contains every process of it, so killing it is a power cut."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

KILL_LIMIT_S = 10.0


def hierarchy() -> Path:
    """Return where cgroup v2 is mounted: beside v1 controllers on a hybrid system, else at the usual path."""
    hybrid = Path("/sys/fs/cgroup/unified")
    return hybrid if (hybrid / "cgroup.procs").exists() else Path("/sys/fs/cgroup")


def kill(name: str) -> None:
    """Kill every process of the cgroup at once, wait until none is left, and remove it with its children."""
    top = hierarchy() / name
    if not top.is_dir():
        return
    (top / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + KILL_LIMIT_S
    while "populated 1" in (top / "cgroup.events").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    remove(top)


def remove(top: Path) -> None:
    """Remove an empty cgroup and its children, the deepest first."""
    if not top.is_dir():
        return
    children = [path for path in top.rglob("*") if path.is_dir()]
    for folder in sorted(children, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
    top.rmdir()


def names(prefix: str) -> list[str]:
    """Return the machine cgroups whose name starts with `prefix`."""
    return [path.name for path in hierarchy().glob(f"{prefix}*")]
