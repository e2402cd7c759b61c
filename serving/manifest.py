"""Makes the manifest of a checkpoint: what a hub or a folder says of its files, into group_data/checkpoints/."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml

from serving.checkpoint import SHOWN, Checkpoint, Experts, load_checkpoint
from serving.files import parse
from serving.problems import Problem, Refused

# How a value came here when a hub has given it; the comment of the value before it goes.
_BY_HUB = "# As the hub says."


def of_folder(folder: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """The manifest of a folder that holds the checkpoint's files: as hostkit.listing, without licence and date."""
    files = files_of(folder)
    total = sum(file["size"] for file in files.values())
    return {"repository": checkpoint.repository, "revision": checkpoint.revision, "total": total, "files": files}


def files_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Size in bytes and sha256 of every file below the folder; hidden files are a client's own and are left out."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    visible = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    found: dict[str, dict[str, Any]] = {}
    for number, path in enumerate(visible, start=1):
        print(f"{number}/{len(visible)} {path.relative_to(folder)}", file=sys.stderr)
        found[str(path.relative_to(folder))] = {"size": path.stat().st_size, "sha256": _sha256(path)}
    return found


def name_of(repository: str, folder: Path) -> str:
    """The YAML that has the repository, or the name for a new one. Raises Refused where several have it."""
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    found = [name for name in names if load_checkpoint(folder, name).repository == repository]
    if len(found) > 1:
        raise Refused([Problem(SHOWN, "", f"{' and '.join(found)} are both {repository}", "name one: NAME=...")])
    return found[0] if found else repository.partition("/")[2].lower()


def write(document: Mapping[str, Any], name: str, folder: Path, experts: str | None = None) -> Path:
    """Put a manifest into the YAML of that name, what stands there being kept. Raises Refused, before any change."""
    path, shown = folder / f"{name}.yaml", f"{SHOWN}/{name}.yaml"
    if path.exists():
        known = load_checkpoint(folder, name)
        if known.repository != document["repository"]:
            what = f"is {known.repository}, not {document['repository']}"
            raise Refused([Problem(shown, "repository", what, "give the manifest another NAME=...")])
        text = path.read_text(encoding="utf-8")
    else:
        text = _new(document["repository"], shown, experts)
    text = with_manifest(text, document)
    parse(Checkpoint, yaml.safe_load(text), shown)
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    return fresh.replace(path)


def with_manifest(text: str, document: Mapping[str, Any]) -> str:
    """The YAML with a manifest's values; other lines, comments too, stay."""
    lines = text.partition("\nfiles:")[0].rstrip("\n").split("\n")
    while lines and lines[-1].startswith("#"):
        lines.pop()  # said why there were no files
    size_gb = float(f"{document['total'] / 1e9:.4g}")
    for key in ("revision", "licence", "date"):
        if document.get(key):
            _set(lines, key, document[key])
    _set(lines, "size_gb", size_gb)
    _set(lines, "total", document["total"])
    return "\n".join([*lines, yaml.safe_dump({"files": dict(document["files"])}, sort_keys=True)])


def _set(lines: list[str], key: str, value: Any) -> None:
    """Set one key in place. A value that is there already keeps its line and its comment."""
    place = next((index for index, line in enumerate(lines) if line.startswith(f"{key}:")), len(lines))
    if place == len(lines):
        lines.append(_line(key, value))
    elif str(yaml.safe_load(lines[place])[key]).lower() != str(value).lower():
        lines[place] = _line(key, value)
        first = place
        while first and lines[first - 1].startswith("#"):
            first -= 1
        lines[first:place] = [_BY_HUB] if place > first else []


def _line(key: str, value: Any) -> str:
    return yaml.safe_dump({key: value}, width=1000).rstrip("\n")


def _new(repository: str, shown: str, experts: str | None) -> str:
    if experts not in get_args(Experts):
        what = f"there is no such file yet, and no hub says in which format the experts of {repository} are"
        raise Refused([Problem(shown, "experts", what, f"add EXPERTS= one of {', '.join(get_args(Experts))}")])
    head = f"purpose: {repository}\nrepository: {repository}\nrevision:\nlicence: unknown\nexperts: {experts}\n"
    return f"{head}# DRAFT: mtp or dspark, where the model has such a head.\ndraft: null\nsize_gb:\ntotal:\n"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
