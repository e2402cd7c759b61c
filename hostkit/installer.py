"""Installs an engine: a virtual environment that equals its hash lock, made and checked beside, then renamed."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from hostkit import atomic, engine_checks, events, filling, integrity, patching, paths, record, toolkit, uv
from hostkit.events import Progress, Result

# Bytecode, and what uv has in hand while it unpacks, on top of the size that the engine says.
_SPARE = 1.15


def install(request: dict[str, Any], progress: Progress) -> Result:
    """Have the engine there, as its lock, wheels and patches say. A failure leaves an engine that is there as it was.

    request: digest, lock and uv_lock (paths), python, find_links or null, bundle (a folder with all wheels, for a host
    without a network) or null, installed_gb, package, versions, checks {imports, help, environment}, cuda_toolkit or
    null, patches (path) or null, deep: also compare every file.
    """
    final = paths.ENGINES / request["digest"]
    sweep()
    try:
        damage = _damage(final, request, progress)
        if damage == []:
            return Result(events.OK, f"engine {request['digest']} is there" + (", every file" * bool(request["deep"])))
        edited = _edited_since(final, damage or [])
        _refuse_without_room(request)
        _make(final, request, progress)
        if request["deep"] and damage:
            _distrust(edited)
    except uv.Failed as failed:
        what = f"engine {request['digest']} was not installed, nothing else was changed: {failed}"
        return Result(events.REFUSED, what, excerpt=failed.output.strip().splitlines()[-20:])
    finally:
        sweep()  # a full disk must not stay full
    return Result(events.OK, f"engine {request['digest']} installed{_why(damage)}")


def _why(damage: list[str] | None) -> str:
    if not damage:
        return ""
    more = f" and {len(damage) - 5} more" if len(damage) > 5 else ""
    return f" anew, in place of one in which was changed: {', '.join(damage[:5])}{more}"


def sweep() -> None:
    """Remove what an installation that was cut off left behind. Under the host's lock there is no other."""
    for leftover in (*paths.ENGINES.glob("*.partial"), *paths.ENGINES.glob("*.cache")):
        shutil.rmtree(leftover, ignore_errors=True)


def _damage(final: Path, request: dict[str, Any], progress: Progress) -> list[str] | None:
    """What of the engine is not as installed; None where it is not there. Files in place only when asked `deep`."""
    changed, stamp = integrity.changed(final), integrity.read_stamp(final)
    if changed or stamp is None or not request["deep"]:
        return changed
    return record.damaged(final, stamp, progress)


def _edited_since(final: Path, damaged: list[str]) -> float:
    """When the first of the files that are still there was changed, s since the epoch."""
    files = [final / name for name in damaged if (final / name).exists()]
    return min((file.stat().st_ctime for file in files), default=0.0)


def _distrust(edited: float) -> None:
    """Servers that were started after a file was edited may run it: by their notes the next run starts them anew.

    Only once the right files are there: until then a new start would run what was edited.
    """
    for note in paths.RUN.glob("sglang-*.json"):
        document = json.loads(note.read_text())
        if note.stat().st_mtime >= edited and document.get("engine_intact"):
            atomic.write(note, json.dumps({**document, "engine_intact": False}), mode=0o600)


def _refuse_without_room(request: dict[str, Any]) -> None:
    """Raises uv.Failed."""
    free, needed = shutil.disk_usage(paths.ENGINES).free / 1e9, request["installed_gb"] * _SPARE
    if free < needed:
        what = f"the disk of {paths.ENGINES} has {free:.1f} GB free, {needed:.1f} GB are needed"
        raise uv.Failed(f"{what}; free the difference or grow the file system")
    if not os.access(request["python"], os.X_OK):
        raise uv.Failed(f"{request['python']} is not there any more; install it and run again")


def _make(final: Path, request: dict[str, Any], progress: Progress) -> None:
    """Raises uv.Failed."""
    partial = final.with_name(f"{final.name}.partial")
    program = uv.find(request, progress)
    progress.tell("environment", f"new environment with {request['python']}")
    venv = ["venv", "--quiet", "--relocatable", "--python", request["python"], str(partial)]
    uv.run(program, *venv, cache=filling.cache(partial))
    filling.fill(program, partial, request, progress)
    found = engine_checks.check_versions(partial, request["versions"])
    patched = patching.apply(partial, request)
    _check(partial, request, progress)
    stamp(partial, request, found, patched)
    if final.exists():
        atomic.exchange(partial, final)  # a running server finds its files at any moment: the old ones or the new
    else:
        partial.rename(final)
    atomic.sync_folder(final.parent)


def _check(partial: Path, request: dict[str, Any], progress: Progress) -> None:
    if request["cuda_toolkit"]:
        toolkit.make(partial, request["cuda_toolkit"])
    progress.tell("checks", "imports, --help and the compiler, as the service user")
    imported = engine_checks.check_imports(partial, request["checks"])
    progress.tell("checks", f"{imported}; {engine_checks.check_compiler(partial, request['cuda_toolkit'])}")


def stamp(environment: Path, request: dict[str, Any], found: list[list[str]], patched: dict[str, Any]) -> None:
    """Say what the environment is, and how it looks now: from here on a change is seen."""
    document = {
        "schema": 1,
        "folders": integrity.folders(environment),
        "digest": request["digest"],
        "package": request["package"],
        "versions": request["versions"],
        "packages": found,
        "patched": patched,
        "python": request["python"],
        "installed": time.time(),
    }
    atomic.write(environment / integrity.STAMP, json.dumps(document) + "\n")
