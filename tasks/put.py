"""Puts a file where the look found another one, or none."""

import hashlib

from serving.schemas import HostState
from tasks.operations import whole_file


def where_different(found: HostState, path: str, content: bytes, mode: str, name: str) -> None:
    """Add an operation of this name unless the host has the file: content, mode (octal), owned by root."""
    file = found.files.get(path)
    wanted = ("file", hashlib.sha256(content).hexdigest(), mode, "root")
    if file is None or (file.type, file.sha256, file.mode, file.owner) != wanted:
        whole_file(name=name, path=path, content=content, mode=mode)
