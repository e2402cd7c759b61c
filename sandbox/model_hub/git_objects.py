"""The ids that git gives to contents, folders and commits: sha1 of a header and the object's bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

_BLOCK = 1 << 20


def blob_id(path: Path) -> str:
    """The id of a file's contents."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def lfs_pointer(sha256: str, size: int) -> bytes:
    """What git itself holds of a file in LFS (git-lfs, docs/spec.md)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def tree_ids(blobs: Mapping[str, str]) -> dict[str, str]:
    """The id of each folder, that of the whole under "": `blobs` maps path to blob id."""
    children: dict[str, dict[str, str]] = {"": {}}
    for path, blob in blobs.items():
        for folder in _above(path):
            children.setdefault(folder, {})
        children[path.rpartition("/")[0]][path.rpartition("/")[2]] = blob
    found: dict[str, str] = {}
    for folder in sorted(children, key=lambda name: (-name.count("/"), name == "", name)):
        found[folder] = _tree_id(children[folder], {name: found[name] for name in _folders_in(folder, children)})
    return found


def commit_id(tree: str, date_s: int) -> str:
    """The id of a commit without parents; the same contents at the same date are the same commit."""
    who = f"sandbox <sandbox@localhost> {date_s} +0000"
    return object_id("commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nfiles\n".encode())


def object_id(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _folders_in(folder: str, children: Mapping[str, object]) -> list[str]:
    return [name for name in children if name and name.rpartition("/")[0] == folder]


def _tree_id(files: Mapping[str, str], folders: Mapping[str, str]) -> str:
    # git sorts a folder as if its name ended in a slash.
    entries = [(name, b"100644", name, blob) for name, blob in files.items()]
    names = {path.rpartition("/")[2]: tree for path, tree in folders.items()}
    entries += [(f"{name}/", b"40000", name, tree) for name, tree in names.items()]
    rows = (b"%s %s\0%s" % (mode, name.encode(), bytes.fromhex(oid)) for _, mode, name, oid in sorted(entries))
    return object_id("tree", b"".join(rows))
