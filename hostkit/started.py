"""The note that a unit's ExecStartPre writes: what the process about to start is started from."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from hostkit import atomic, paths


def note(unit: str) -> None:
    """Write /run/sglang/<unit>.json: invocation id, active release, digests of the files that systemd reads."""
    name = unit.removesuffix(".service")
    files = [paths.CONFIG / "nccl.env", paths.CONFIG / f"{name}.env", paths.UNITS / unit]
    document = {
        "schema": 1,
        "unit": unit,
        "invocation_id": os.environ.get("INVOCATION_ID", ""),
        "release": paths.ACTIVE.readlink().name if paths.ACTIVE.is_symlink() else None,
        "files": {str(path): digest_without_comments(path) for path in files if path.is_file()},
    }
    atomic.write(_path(unit), json.dumps(document))


def read(unit: str) -> dict[str, Any] | None:
    try:
        document = json.loads(_path(unit).read_text())
    except (OSError, ValueError):
        return None
    return {key: document[key] for key in ("invocation_id", "release", "files")}


def digest_without_comments(path: Path) -> str:
    """sha256 of what the file says to systemd: a changed comment is no change of what starts."""
    lines = (line.strip() for line in path.read_text().splitlines())
    text = "\n".join(line for line in lines if line and not line.startswith(("#", ";")))
    return hashlib.sha256(text.encode()).hexdigest()


def _path(unit: str) -> Path:
    return paths.RUN / f"{unit.removesuffix('.service')}.json"
