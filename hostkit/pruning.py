"""Engines that no release on this host needs any more, and what was compiled for them."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from hostkit import paths


def engines_of(releases: Iterable[str]) -> set[str]:
    """Digests of the engines that these releases name. Raises OSError, ValueError, KeyError for one that is damaged."""
    found: set[str] = set()
    for digest in releases:
        document = json.loads((paths.RELEASES / digest / "release.json").read_text())
        units = [unit.get("engine", document["engine"]) for unit in document["units"]]
        found |= {engine["digest"] for engine in (document["engine"], *units)}
    return found


def forget_engines(candidates: set[str], kept: Iterable[str]) -> list[str]:
    """Remove those candidates that no kept release needs and no process runs from; returns what went."""
    try:
        needed = engines_of(kept)
    except (OSError, ValueError, KeyError):
        return []  # a release that cannot be read may need any of them
    gone = sorted(candidates - needed - set(_in_use(candidates)))
    for digest in gone:
        _remove(digest)
    return gone


def _remove(digest: str) -> None:
    """By its name first: half an engine must not look like one."""
    partial = paths.ENGINES / f"{digest}.partial"
    with contextlib.suppress(FileNotFoundError):
        (paths.ENGINES / digest).rename(partial)
    for folder in (partial, paths.CACHES / digest):
        shutil.rmtree(folder, ignore_errors=True)
    for suffix in ("lock", "patches"):
        (paths.ENGINES / f"{digest}.{suffix}").unlink(missing_ok=True)


def _in_use(digests: Iterable[str]) -> Iterator[str]:
    """Engines that the command line of a process names, whoever started it."""
    lines = list(_command_lines())
    for digest in digests:
        folder = os.fsencode(paths.ENGINES / digest)
        if any(folder in line for line in lines):
            yield digest


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()
