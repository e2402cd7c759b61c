"""The checkpoint job: what is there is checked, what is missing or wrong is brought, and a stamp says so in the end.

Nothing takes its place before all of it is whole: a new revision is a folder that is renamed, a bad file of an old one
is set aside and replaced.
"""

import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hostkit import adopt, atomic, events, partial, readers, requested, stamps, verify
from hostkit.events import Progress, Result
from hostkit.requested import Files, Refused


def bring(request: dict[str, Any], progress: Progress) -> Result:
    """The checkpoint is whole and checked.

    request: folder, repository, revision; files {name: {size, sha256 or git_blob_id}}, null: as the hub lists them;
    sources: hubs, and folders by their absolute path, in order; adopt: folders; token_file: path or null; streams;
    deep: check files again that have not changed; limits: see ways.Limits, for tests.
    """
    try:
        return _brought(Path(request["folder"]), requested.files(request), request, progress)
    except (Refused, partial.Busy) as refusal:
        return Result(events.REFUSED, str(refusal))


def _brought(folder: Path, files: Files, request: dict[str, Any], progress: Progress) -> Result:
    before = {name: stamps.identity(folder / name) for name in files if (folder / name).is_file()}
    good = set() if request.get("deep") else stamps.unchanged(folder, files)
    unsure = {name: files[name] for name in files if name in before and name not in good}
    damaged = verify.damage(folder, unsure, progress)
    lacking = {name: files[name] for name in files if name not in before or name in damaged}
    seen = {name: before[name] for name in files if name not in lacking}
    readers_of_bad: list[str] = []
    if lacking:
        stamps.remove(folder)
        _refuse_without_source(folder, lacking, damaged, request)
        readers_of_bad = readers.disown(folder, [(folder / name).stat().st_ctime for name in damaged])
        seen |= _replaced(folder, lacking, set(files), request, progress)
    stamps.write(folder, request["repository"], request["revision"], files, seen)
    return _result(folder, files, damaged, readers_of_bad)


def _refuse_without_source(folder: Path, lacking: Files, damaged: dict[str, str], request: dict[str, Any]) -> None:
    if not (request["sources"] or request["adopt"]):
        named = [f"{folder}/{name} {damaged.get(name, 'is missing')}" for name in lacking]
        raise Refused(f"the checkpoint is damaged: {'; '.join(named)}; copy these files again, or name hub_mirrors")


def _result(folder: Path, files: Files, damaged: dict[str, str], readers_of_bad: list[str]) -> Result:
    total = sum(file["size"] for file in files.values())
    whole = f"{len(files)} files, {total / 1e9:.3f} GB, all as in the manifest"
    if damaged:
        whole += f"; {len(damaged)} bad files were set aside in {_aside(folder)}"
    if readers_of_bad:
        what = f"{', '.join(readers_of_bad)} was started from a bad file: run again, which starts it anew"
        return Result(events.NOT_ACCEPTED, f"{whole}; {what}")
    return Result(events.OK, whole)


def _replaced(
    folder: Path, lacking: Files, names: set[str], request: dict[str, Any], progress: Progress
) -> dict[str, stamps.Identity]:
    """Brings what is lacking of the files with these names; the identities of what was brought."""
    with partial.partial(folder, lacking) as opened:
        _fill(opened, request, progress)
        _refuse_half(opened, names)
        opened.finish()
        seen = {part.name: part.seen for part in opened.parts}
    if folder.exists():
        for name in lacking:
            _put(opened.folder / name, folder, name)
        shutil.rmtree(opened.folder)
    else:
        opened.folder.rename(folder)
    for changed in {folder.parent, folder, *((folder / name).parent for name in lacking)}:
        atomic.sync_folder(changed)
    return seen


def _fill(opened: partial.Partial, request: dict[str, Any], progress: Progress) -> None:
    found = {part.name: path for part in opened.parts if (path := requested.adoptable(part, request))}
    copies = adopt.adopt(opened, found, progress)
    if all(part.whole for part in opened.parts):
        return
    from hostkit import fetch, sources, streams, ways

    places = [requested.source(place, opened, request) for place in request["sources"]]
    local: Sequence[sources.Source] = [sources.Folder("adopt", copies)] if copies else []
    routes: dict[str, Sequence[sources.Source]] = {
        part.name: [*(local if part.name in copies else []), *places] for part in opened.parts
    }
    limits = ways.Limits(**request.get("limits", {}))
    try:
        fetch.fetch(opened, routes, request["streams"], limits, progress)
    except streams.DiskFull as full:
        raise Refused(f"{full}; free the difference and run again: what was fetched is kept") from None
    except ways.GivenUp as problem:
        raise Refused(f"{problem}. Run again: what was fetched is kept") from None


def _refuse_half(opened: partial.Partial, names: set[str]) -> None:
    """A manifest made from the first page of a listing lacks shards that the index names."""
    for part in opened.parts:
        if part.name.endswith(".safetensors.index.json"):
            try:
                shards = set(json.loads(part.path.read_text())["weight_map"].values())
            except (ValueError, LookupError, AttributeError, TypeError):
                continue
            lacking = sorted(shards - names)
            if lacking:
                remedy = "make the manifest again, from all pages of the listing"
                raise Refused(
                    f"{part.name} names {len(lacking)} files that the manifest lacks ({lacking[0]}); {remedy}"
                )


def _put(path: Path, folder: Path, name: str) -> None:
    """Put a whole file where a bad one may be, which is kept beside the folder."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        kept = _aside(folder) / f"{name}.{time.strftime('%F_%H-%M-%S')}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        target.rename(kept)
    path.rename(target)


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.aside")
