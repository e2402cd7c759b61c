"""Jobs under way on this host, and how far each is: a run joins them, and whoever asks for the status sees them."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from hostkit import paths, systemd

_LAST = 4096  # bytes; a line of progress is shorter


def kinds() -> list[str]:
    lines = systemd.run("systemctl", "list-units", "--plain", "--no-legend", "sglang-job-*.service", check=False)
    rows = [line.split() for line in lines.splitlines() if line.split()]
    names = [row[0] for row in rows if row[2:3] != ["failed"]]  # a failed unit is still listed
    return [name.removeprefix("sglang-job-").removesuffix(".service") for name in names]


def last_event(kind: str) -> dict[str, Any] | None:
    """The newest line of progress of the job of that kind, None before its first one."""
    place = paths.RUN / "jobs" / kind
    with contextlib.suppress(OSError, ValueError, LookupError):
        job = json.loads((place / "current.json").read_text())["job"]
        event: dict[str, Any] = json.loads(_last_line(place / job / "events.jsonl"))
        return event
    return None


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
        return file.read().decode(errors="replace").split("\n")[-2]  # what follows the last one is being written


def in_words(kind: str, event: dict[str, Any] | None) -> str:
    """One line for a reader."""
    if event is None:
        return f"{kind}: under way"
    percent = "" if event["percent"] is None else f"{event['percent']:.0f} %, "
    left = "" if event["eta_s"] is None else f", about {event['eta_s']:.0f} s left"
    return f"{kind}: {percent}{event['message']}{left}"
