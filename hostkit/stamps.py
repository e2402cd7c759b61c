"""The stamp of a checkpoint: written after every byte was checked, true while no file has changed since."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostkit import atomic
from hostkit.inspection import identity, stamp, stamp_path

Identity = dict[str, int]


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
    atomic.write(stamp_path(folder), json.dumps(document, indent=1) + "\n")


def remove(folder: Path) -> None:
    """No release starts from the folder any more."""
    stamp_path(folder).unlink(missing_ok=True)


def unchanged(folder: Path, files: Mapping[str, Any]) -> set[str]:
    """Names of the files that are as the last full check saw them, and were then held against the same hashes."""
    found = stamp(folder) or {}
    seen, manifest = found.get("files", {}), found.get("manifest", {})
    return {
        name for name in files if name in seen and manifest.get(name) == files[name] and _is(folder / name, seen[name])
    }


def manifest(folder: Path) -> str:
    """The manifest that the folder was checked against, as JSON. Raises OSError, ValueError, KeyError."""
    document = json.loads(stamp_path(folder).read_text())
    files = document["manifest"]
    total = sum(file["size"] for file in files.values())
    about = {"repository": document["repository"], "revision": document["revision"], "total": total, "files": files}
    return json.dumps(about)


def _is(path: Path, seen: Identity) -> bool:
    return path.is_file() and identity(path) == seen
