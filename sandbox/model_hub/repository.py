"""Repositories as folders: which commit a branch is at, and what each file of it is."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sandbox.model_hub import git_objects
from sandbox.place import replace

# A selection of what the hub's own .gitattributes names; other files go to LFS from this size on (bytes).
LFS_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".onnx", ".tar", ".zip")
LFS_FROM = 10 << 20
HASHES = ".hashes.json"
UNDATED = "1970-01-01T00:00:00.000Z"


@dataclass(frozen=True)
class Entry:
    """One file: size in bytes, id of what git holds of it, and sha256 where that is an LFS pointer."""

    size: int
    oid: str
    sha256: str | None = None

    @property
    def lfs(self) -> dict[str, Any] | None:
        if self.sha256 is None:
            return None
        pointer = len(git_objects.lfs_pointer(self.sha256, self.size))
        return {"oid": self.sha256, "size": self.size, "pointerSize": pointer}


@dataclass(frozen=True)
class Revision:
    """A branch as it is now."""

    folder: Path
    commit: str
    files: dict[str, Entry]
    folders: dict[str, str]
    card: dict[str, Any] = field(default_factory=dict)


class UnknownRepository(LookupError):
    """No folder of that name."""


class UnknownRevision(LookupError):
    """Neither a branch nor the commit of one."""


class Store:
    """All repositories below a folder. Files are hashed once, and again when they change.

    What was hashed stands in <folder>/.hashes.json: the next hub over the folder need not read gigabytes again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._hashed = _read_hashes(folder / HASHES)
        self._known: dict[Path, tuple[object, Revision]] = {}

    def hash_all(self) -> None:
        """Before anybody asks: hashing would be part of the first answer."""
        for main in self.folder.glob("*/*/"):
            if "@" not in main.name:
                for branch in self._branches(f"{main.parent.name}/{main.name}"):
                    self.revision(f"{main.parent.name}/{main.name}", branch)

    def revision(self, repository: str, name: str) -> Revision:
        """A branch by its name or by its commit. Raises UnknownRepository, UnknownRevision."""
        branches = self._branches(repository)
        if name in branches:
            return self._read(branches[name], self._card(repository))
        for folder in branches.values():
            revision = self._read(folder, self._card(repository))
            if revision.commit == name:
                return revision
        raise UnknownRevision(name)

    def _branches(self, repository: str) -> dict[str, Path]:
        main = self.folder / repository
        if repository.count("/") != 1 or ".." in repository or not main.is_dir():
            raise UnknownRepository(repository)
        others = {path.name.partition("@")[2]: path for path in main.parent.glob(f"{main.name}@*") if path.is_dir()}
        return {"main": main, **others}

    def _card(self, repository: str) -> dict[str, Any]:
        path = self.folder / f"{repository}.json"
        return dict(json.loads(path.read_text())) if path.is_file() else {}

    def _read(self, folder: Path, card: dict[str, Any]) -> Revision:
        seen = {name: _identity(folder / name) for name in _names(folder)}
        signature = (seen, card)
        with self._lock:
            known = self._known.get(folder)
            if known is None or known[0] != signature:
                known = self._known[folder] = (signature, self._hash(folder, seen, card))
            return known[1]

    def _hash(self, folder: Path, seen: dict[str, tuple[int, int, int]], card: dict[str, Any]) -> Revision:
        fresh = [name for name, identity in seen.items() if (str(folder / name), *identity) not in self._hashed]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for name, entry in zip(fresh, pool.map(lambda name: _entry(folder / name), fresh), strict=True):
                self._hashed[(str(folder / name), *seen[name])] = entry
        if fresh:
            rows = [[*key, *astuple(entry)] for key, entry in self._hashed.items()]
            with contextlib.suppress(OSError):  # a folder that is read-only, or another hub's as well
                replace(self.folder / HASHES, json.dumps(rows))
        files = {name: self._hashed[(str(folder / name), *identity)] for name, identity in seen.items()}
        folders = git_objects.tree_ids({name: entry.oid for name, entry in files.items()})
        date = datetime.fromisoformat(card.get("date", UNDATED))
        return Revision(folder, git_objects.commit_id(folders[""], int(date.timestamp())), files, folders, card)


def _read_hashes(path: Path) -> dict[tuple[str, int, int, int], Entry]:
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {(name, size, mtime, inode): Entry(*entry) for name, size, mtime, inode, *entry in rows}


def _names(folder: Path) -> list[str]:
    """Files below a folder; hidden folders are git's or a client's own."""
    found = []
    for root, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        found += [str((Path(root) / name).relative_to(folder)) for name in names]
    return sorted(found)


def _identity(path: Path) -> tuple[int, int, int]:
    seen = path.stat()
    return seen.st_size, seen.st_mtime_ns, seen.st_ino


def _entry(path: Path) -> Entry:
    size = path.stat().st_size
    if size < LFS_FROM and path.suffix not in LFS_SUFFIXES:
        return Entry(size, git_objects.blob_id(path))
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Entry(size, git_objects.object_id("blob", git_objects.lfs_pointer(sha256, size)), sha256)
