"""Kept layers: what one host installed, below the writable layer of every host that boots fresh later.

An engine takes a minute to install and is immutable, named by its digest. Each `keep` adds one more
read-only layer with only the names that no earlier layer has; a layer in use is never changed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandbox.commands import run
from sandbox.errors import BadRequest
from sandbox.place import Place, cache_folder, locked


@dataclass(frozen=True)
class Kept:
    """What one `keep` did: the absolute paths it copied, their size (MB) and the time it took (s)."""

    paths: tuple[str, ...]
    megabytes: int
    seconds: float


def existing(place: Place, tree: Path) -> list[Path]:
    """Return the layers made on this base tree, newest first, as the overlay wants them."""
    folder = place.layers / tree.name
    return sorted(folder.glob("[0-9]*"), reverse=True) if folder.is_dir() else []


def keep(place: Place, tree: Path, view: Path, paths: Iterable[str]) -> Kept:
    """Copy what `paths` hold in a host's `view` and no layer has, as a new layer that appears at once.

    Of a folder its children are considered one by one: an engine that is kept already is left out.
    """
    started = time.monotonic()
    place.layers.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(place.layers / "lock"):
        layers = existing(place, tree)
        wanted = [name for path in paths for name in _missing(view, _absolute(view, path), layers)]
        if not wanted:
            return Kept((), 0, time.monotonic() - started)
        layer = _copied(place.layers / tree.name, len(layers), view, wanted)
    megabytes = int(run("du", "-sm", str(layer)).split()[0])
    return Kept(tuple(f"/{name}" for name in wanted), megabytes, time.monotonic() - started)


def drop_stale(place: Place) -> None:
    """Drop layers whose base tree is gone: a file's owner may have another number in the next one."""
    folders = [path for path in place.layers.iterdir() if path.is_dir()] if place.layers.is_dir() else []
    for layers in folders:
        if not (cache_folder() / layers.name).exists():
            shutil.rmtree(layers)


def _absolute(view: Path, path: str) -> PurePosixPath:
    """Return the path relative to the host's root, after making sure that it names something in there."""
    name = PurePosixPath(path)
    if not name.is_absolute() or ".." in name.parts or len(name.parts) < 2:
        raise BadRequest(f"{path}: give an absolute path inside the host, such as /opt/sglang/engines")
    inside = name.relative_to("/")
    for part in (inside, *inside.parents):
        # A link could lead out of the host, since it is looked at from outside.
        if (view / part).is_symlink() or not (view / part).exists():
            raise BadRequest(f"{path}: /{part} is a link or is not there; give the real path inside the host")
    return inside


def _missing(view: Path, path: PurePosixPath, layers: list[Path]) -> list[PurePosixPath]:
    whole = view / path
    names = [path / child for child in sorted(os.listdir(whole))] if whole.is_dir() else [path]
    return [name for name in names if not any(os.path.lexists(layer / name) for layer in layers)]


def _copied(folder: Path, number: int, view: Path, names: list[PurePosixPath]) -> Path:
    partial, layer = folder / ".partial", folder / f"{number + 1:04d}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _copy_folder_attributes(view, partial)
    for name in names:
        _make_parents(view, partial, name)
        run("cp", "--archive", "--reflink=auto", str(view / name), str(partial / name))
    run("sync", "--file-system", str(partial))  # its content must not reach the disk after its name
    return partial.rename(layer)


def _make_parents(view: Path, layer: Path, name: PurePosixPath) -> None:
    for parent in reversed(name.parents[:-1]):
        (layer / parent).mkdir(exist_ok=True)
        _copy_folder_attributes(view / parent, layer / parent)


def _copy_folder_attributes(source: Path, target: Path) -> None:
    """Give a folder the owner and mode of the original: the uppermost layer decides them for all."""
    status = source.stat()
    os.chown(target, status.st_uid, status.st_gid)
    shutil.copystat(source, target)
