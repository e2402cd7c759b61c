"""The stamp of a checkpoint: written after every byte was checked, true while no file has changed since."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostkit import paths

Identity = dict[str, int]


def identity(path: Path) -> Identity:
    """What changes when a file's content is replaced: size (bytes), mtime (ns), inode."""
    info = path.stat()
    return {"size": info.st_size, "mtime_ns": info.st_mtime_ns, "inode": info.st_ino}


def read(folder: Path) -> dict[str, Any] | None:
    """The stamp of the folder; None where there is none that can be read."""
    try:
        document: dict[str, Any] = json.loads(_path(folder).read_text())
    except (OSError, ValueError):
        return None
    return document


def is_verified(folder: Path) -> str | None:
    """None when the folder's files are those that the last full check saw, else what differs."""
    stamp = read(folder)
    if stamp is None:
        return f"{folder} was never checked"
    for name, seen in stamp["files"].items():
        if not _is(folder / name, seen):
            return f"{folder / name} changed since its check"
    return None


def _path(folder: Path) -> Path:
    return paths.CHECKPOINT_STAMPS / ("_".join(folder.parts[-3:]) + ".json")


def write(folder: Path, repository: str, revision: str, files: Mapping[str, Any], seen: Mapping[str, Identity]) -> None:
    """`seen` are identities from before the first byte was read: a file replaced meanwhile does not match its stamp."""
    document = {
        "schema": 1,
        "repository": repository,
        "revision": revision,
        "files": dict(seen),
        "manifest": {name: dict(expected) for name, expected in files.items()},
        "verified": time.time(),
    }
    from hostkit import atomic  # for writers alone: the gate is in a hurry

    atomic.write(_path(folder), json.dumps(document, indent=1) + "\n")


def remove(folder: Path) -> None:
    """No release starts from the folder any more."""
    _path(folder).unlink(missing_ok=True)


def unchanged(folder: Path, files: Mapping[str, Any]) -> set[str]:
    """Names of the files that are as the last full check saw them, and were then held against the same hashes."""
    found = read(folder) or {}
    seen, manifest = found.get("files", {}), found.get("manifest", {})
    return {
        name for name in files if name in seen and manifest.get(name) == files[name] and _is(folder / name, seen[name])
    }


def manifest(folder: Path) -> str:
    """The manifest that the folder was checked against, as JSON. Raises OSError, ValueError, KeyError."""
    document = json.loads(_path(folder).read_text())
    files = document["manifest"]
    total = sum(file["size"] for file in files.values())
    about = {"repository": document["repository"], "revision": document["revision"], "total": total, "files": files}
    return json.dumps(about)


def _is(path: Path, seen: Identity) -> bool:
    return path.is_file() and identity(path) == seen
