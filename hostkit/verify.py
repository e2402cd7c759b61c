"""Checks a checkpoint against its manifest: every byte once, then a stamp says so until a file changes."""

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hostkit import atomic, events
from hostkit.events import Progress, Result
from hostkit.inspection import identity, stamp_path

_BLOCK = 8 << 20


def verify(request: dict[str, Any], progress: Progress) -> Result:
    """request: folder, repository, revision, files {name: {size, sha256}}. Nothing in the folder is changed."""
    folder, files = Path(request["folder"]), request["files"]
    total = sum(file["size"] for file in files.values())
    seen = {name: identity(folder / name) for name in files if (folder / name).is_file()}
    wrong: list[str] = []
    done = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        names = sorted(files, key=lambda name: -int(files[name]["size"]))
        for name, problem in zip(names, pool.map(lambda name: _problem(folder, name, files[name]), names), strict=True):
            done += files[name]["size"]
            progress.tell("checkpoint", f"{name}: {problem or 'whole'}", percent=100 * done / max(1, total))
            wrong += [f"{folder}/{name} {problem}"] if problem else []
    if wrong:
        stamp_path(folder).unlink(missing_ok=True)
        return Result(events.REFUSED, f"the checkpoint is damaged: {'; '.join(wrong)}; copy these files again")
    _stamp(folder, request, seen)
    return Result(events.OK, f"{len(files)} files, {total / 1e9:.3f} GB, all as in the manifest")


def is_verified(folder: Path) -> str | None:
    """None when the folder's files are those that the last full check saw, else what differs."""
    try:
        stamp = json.loads(stamp_path(folder).read_text())
    except (OSError, ValueError):
        return f"{folder} was never checked"
    for name, seen in stamp["files"].items():
        path = folder / name
        if not path.is_file() or identity(path) != seen:
            return f"{path} changed since its check"
    return None


def _problem(folder: Path, name: str, expected: dict[str, Any]) -> str | None:
    path = folder / name
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != expected["size"]:
        return f"has {path.stat().st_size} bytes instead of {expected['size']}"
    return None if _sha256(path) == expected["sha256"] else "has other content than the manifest says"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _stamp(folder: Path, request: dict[str, Any], seen: dict[str, Any]) -> None:
    """`seen` was taken before the first byte was read: a file replaced meanwhile does not match its stamp."""
    document = {
        "schema": 1,
        "repository": request["repository"],
        "revision": request["revision"],
        "files": seen,
        "verified": time.time(),
    }
    atomic.write(stamp_path(folder), json.dumps(document, indent=1) + "\n")
