"""Every installed file of an engine against the digest that its package's RECORD has: finds edits in place.

Takes the time of reading the engine once, so it is for `--data deep=true` and not for every look.
"""

import base64
import csv
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hostkit.events import Progress


def packages_folder(environment: Path) -> Path:
    """The environment's site-packages."""
    return next(environment.glob("lib/python3*/site-packages"))


def damaged(environment: Path, stamp: dict[str, Any], progress: Progress) -> list[str]:
    """Files that are gone or not as installed, relative to the environment. What patches changed is as they made it."""
    wanted: dict[str, set[str | None]] = {}
    for name, digest in _recorded(environment):
        wanted.setdefault(name, set()).add(digest)  # two packages may bring one file: the last one installed has it
    wanted |= {name: {digest} for name, digest in stamp.get("patched", {}).items()}
    progress.tell("files", f"{len(wanted)} files against the digests of their packages")
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: _digest(environment / name), wanted)
        return sorted(name for name, digest in zip(wanted, found, strict=True) if digest not in wanted[name])


def _recorded(environment: Path) -> Iterator[tuple[str, str]]:
    """(path, sha256 in hex) of each file with a digest in a RECORD (PEP 376, PEP 427).

    Bytecode that a wheel brings (numpy's does) is made anew at the installation.
    """
    folder = packages_folder(environment)
    for path in sorted(folder.glob("*.dist-info/RECORD")):
        with path.open(newline="", encoding="utf-8") as file:
            for name, digest, *_ in csv.reader(file):
                if digest.startswith("sha256=") and not name.endswith(".pyc"):
                    yield _relative(environment, folder, name), _hex(digest.removeprefix("sha256="))


def _relative(environment: Path, folder: Path, name: str) -> str:
    """RECORD is relative to site-packages, and climbs out of it for scripts (../../../bin/x)."""
    parts: list[str] = list(folder.relative_to(environment).parts)
    for part in Path(name).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _hex(digest: str) -> str:
    return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()


def _digest(path: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()
