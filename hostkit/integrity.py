"""Whether an installed engine is still as it was installed: cheap enough for every look.

Every folder of the environment is listed in the stamp with the time of its last change. What is added, removed or
replaced changes the time of the folder it lies in; only a file that is rewritten in place is not seen.
"""

import json
import os
from pathlib import Path
from typing import Any

STAMP = "engine.json"


def folders(engine: Path) -> dict[str, int]:
    """Every folder below the engine's own, with its mtime in ns; those of bytecode, which follow the sources, aside."""
    found = {}
    for root, names, _ in os.walk(engine):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in names:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                found[os.path.relpath(path, engine)] = os.lstat(path).st_mtime_ns
    return found


def changed(engine: Path) -> list[str] | None:
    """Folders of the engine that changed since its installation; None when it was never completely installed."""
    stamp = read_stamp(engine)
    if stamp is None:
        return None
    return changed_since(engine, stamp)


def changed_since(engine: Path, stamp: dict[str, Any]) -> list[str]:
    """Folders of the engine that are not as in its stamp."""
    return sorted(name for name, mtime_ns in stamp["folders"].items() if _mtime_ns(f"{engine}/{name}") != mtime_ns)


def is_intact(engine: Path) -> bool:
    return changed(engine) == []


def read_stamp(engine: Path) -> dict[str, Any] | None:
    try:
        stamp: dict[str, Any] = json.loads((engine / STAMP).read_text())
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp.get("folders"), dict) else None


def _mtime_ns(path: str) -> int | None:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return None
