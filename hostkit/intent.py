"""The intent: written before the first change of an activation, gone when the host is where it should be.

Whoever finds one and no job at work (the boot unit, a job's ExecStopPost) knows that an activation was cut off.
"""

import json
import time
from pathlib import Path
from typing import Any

from hostkit import atomic, paths

FILE = paths.STATE / "intent.json"
_KEYS = {"to", "back_to", "gates", "attempt", "since", "boot"}
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def write(to: str, back_to: list[str], mode: str, attempt: int) -> None:
    """An activation of release `to` begins; what it would go back to, the best first. Raises OSError."""
    document = {
        "schema": 1,
        "to": to,
        "back_to": back_to,
        "gates": mode,
        "attempt": attempt,
        "since": time.time(),
        "boot": boot_id(),
    }
    atomic.write(FILE, json.dumps(document))


def read() -> dict[str, Any] | None:
    """The intent of an activation that did not end, None where there is none (or none that can be read)."""
    try:
        document: dict[str, Any] = json.loads(FILE.read_text())
    except (OSError, ValueError):
        return None
    return document if document.keys() >= _KEYS else None


def is_of_this_boot(document: dict[str, Any]) -> bool:
    return bool(document["boot"] == boot_id())


def boot_id() -> str:
    """Another one after each boot."""
    return _BOOT_ID.read_text().strip()


def clear() -> None:
    FILE.unlink(missing_ok=True)
    atomic.sync_folder(FILE.parent)
