"""The revisions of checkpoints on this host: what each takes, who needs it, and how one goes: on request only."""

import json
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostkit import acceptance, events, jobs, ours, paths, processes, stamps
from hostkit.events import Progress, Result

USUAL = Path("/srv/models")
# Only folders that the playbook made are looked at: people keep other things beside them.
_OURS = re.compile(r"([0-9a-f]{40})(\.incomplete|\.aside)?")
_STATES = {".incomplete": "fetched in part", ".aside": "bad files, set aside"}


@dataclass(frozen=True)
class Revision:
    """One folder <models>/<owner>/<name>/<commit>, or what a fetch has left beside it (commit.incomplete, .aside).

    `frees` is what its removal gives back, in bytes: files that are linked from elsewhere too (adopted) give nothing.
    """

    folder: Path
    state: str
    size: int
    frees: int
    needed_by: tuple[str, ...]

    @property
    def name(self) -> str:
        owner, repository, revision = self.folder.parts[-3:]
        return f"{owner}/{repository}@{revision}"


class Unsure(Exception):
    """A release cannot be read: it may need any checkpoint."""


def revisions(models: Iterable[Path]) -> list[Revision]:
    """All of them below these folders, by name. Raises Unsure."""
    needed = _needed()
    roots = dict.fromkeys([*models, *(folder.parents[2] for folder in needed)])
    return [_revision(folder, needed) for root in roots for folder in sorted(root.glob("*/*/*")) if _is_ours(folder)]


def lines(models: Iterable[Path]) -> list[str]:
    """The table, for an operator. Raises Unsure."""
    found = revisions(models)
    rows = [("checkpoint", "GB", "state", "needed by")]
    rows += [(one.name, f"{one.size / 1e9:.3f}", one.state, ", ".join(one.needed_by) or "nobody") for one in found]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    spare = [one for one in found if not one.needed_by]
    hints = [f"frees {one.frees / 1e9:.3f} GB: sglang-box checkpoints --remove {one.name}" for one in spare]
    return [*table, *hints] if found else ["no checkpoint is on this host"]


def remove(request: dict[str, Any], progress: Progress) -> Result:
    """request: models [folders], remove [names: owner/name@commit, of which its first 7 digits do]. All or none."""
    try:
        found = revisions(map(Path, request["models"]))
    except Unsure as problem:
        return Result(events.REFUSED, str(problem))
    chosen = {name: [one for one in found if _is_meant(one, name)] for name in request["remove"]}
    problems = [problem for name, meant in chosen.items() for problem in _problems(name, meant)]
    if problems:
        return Result(events.REFUSED, f"nothing was removed: {'; '.join(problems)}")
    going = list(dict.fromkeys(one for meant in chosen.values() for one in meant))
    for one in going:
        progress.tell("checkpoints", f"removing {one.name}, {one.frees / 1e9:.3f} GB")
        _remove(one.folder)
    freed = sum(one.frees for one in going)
    linked = sum(one.size for one in going) - freed
    kept = f"; {linked / 1e9:.3f} GB are linked from elsewhere and stay" if linked else ""
    return Result(events.OK, f"freed {freed / 1e9:.3f} GB: {', '.join(one.name for one in going)}{kept}")


def _needed() -> dict[Path, list[str]]:
    """Each checkpoint's folder that a kept release starts from, with the releases. Raises Unsure."""
    found: dict[Path, list[str]] = {}
    for digest in acceptance.kept():
        place = paths.RELEASES / digest
        try:
            folder = Path(json.loads((place / "release.json").read_text())["checkpoint"]["folder"])
        except (OSError, ValueError, LookupError, TypeError):
            raise Unsure(f"{place} cannot be read, and may need any checkpoint: remove it first") from None
        found.setdefault(folder, []).append(f"release {digest}")
    return found


def _is_ours(folder: Path) -> bool:
    return bool(_OURS.fullmatch(folder.name)) and folder.is_dir() and not folder.is_symlink()


def _revision(folder: Path, needed: dict[Path, list[str]]) -> Revision:
    state = _STATES.get(folder.suffix) or ("not checked" if stamps.is_verified(folder) else "checked")
    seen = [path.lstat() for path in folder.rglob("*")]
    taken = [(info.st_blocks * 512, info.st_nlink) for info in seen if not stat.S_ISDIR(info.st_mode)]
    users = [*needed.get(folder, []), *_users(folder)]
    size, frees = sum(blocks for blocks, _ in taken), sum(blocks for blocks, links in taken if links == 1)
    return Revision(folder, state, size, frees, tuple(users))


def _users(folder: Path) -> Iterator[str]:
    """Processes with an argument that names it: a server that somebody started by hand is of no release."""
    own = set(ours.services())
    for pid in processes.pids():
        words = (word.rpartition("=")[2].rstrip("/") for word in processes.arguments(pid))
        process = processes.read(pid) if str(folder) in words else None
        if process and process.unit not in own and not (process.unit or "").startswith("sglang-job-"):
            yield f"pid {pid} of {process.user}"


def _is_meant(one: Revision, name: str) -> bool:
    repository, _, revision = name.partition("@")
    own, _, commit = one.name.partition("@")
    short, _, suffix = revision.partition(".")
    return own == repository and len(short) >= 7 and commit.startswith(short) and commit.partition(".")[2] == suffix


def _problems(name: str, meant: list[Revision]) -> Iterator[str]:
    if not meant:
        yield f"{name} is not here: sglang-box checkpoints lists what is"
    elif len(meant) > 1:
        yield f"{name} is {' and '.join(one.name for one in meant)}: name more of its digits"
    for one in meant:
        if one.needed_by:
            yield f"{one.name} is needed by {', '.join(one.needed_by)}"
    if meant and any(jobs.running(kind) for kind in (jobs.CHECKPOINT, jobs.CHECK)):
        yield "a checkpoint is being fetched or checked: try again when that has ended"


def _remove(folder: Path) -> None:
    """The stamp goes first: what is half removed is no release's to start from."""
    stamps.remove(folder)
    shutil.rmtree(folder)
    for above in (folder.parent, folder.parent.parent):
        if not any(above.iterdir()):
            above.rmdir()
