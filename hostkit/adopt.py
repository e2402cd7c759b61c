"""Files of a checkpoint that this host already has under another path: taken over without a copy where that can be.

They are read and never changed. A clone that shares blocks is best (btrfs, XFS): it stays as it is when the operator's
file changes. A hard link is next; a change of the operator's file is then seen by the stamp.
"""

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from hostkit import contents
from hostkit.events import Progress
from hostkit.partial import Part, Partial
from hostkit.stamps import identity

_FICLONE = 0x40049409  # ioctl_ficlone(2)


def find(folders: Sequence[str], repository: str, revision: str, part: Part) -> Path | None:
    """A file of the part's name and size, in one of the layouts in which folders hold a repository."""
    for folder in map(Path, folders):
        for place in _layouts(folder, repository, revision):
            path = (place / part.name).resolve()
            if path.is_file() and path.stat().st_size == part.size:
                return path
    return None


def _layouts(folder: Path, repository: str, revision: str) -> Iterator[Path]:
    yield folder
    yield folder / repository / revision
    yield folder / repository
    yield folder / f"models--{repository.replace('/', '--')}" / "snapshots" / revision  # huggingface_hub's cache


def adopt(partial: Partial, found: dict[str, Path], progress: Progress) -> dict[str, Path]:
    """Link those of the files found that can be linked and are right; returns those that have to be copied."""
    parts = {part.name: part for part in partial.parts if part.name in found and not part.whole}
    near = {found[name]: part for name, part in parts.items() if _is_near(found[name], partial.folder)}
    before = {path: identity(path) for path in near}
    wrong, done, total = set(), 0, sum(part.size for part in near.values())
    for path, problem in contents.problems({path: part.expected for path, part in near.items()}):
        part = near[path]
        done += part.size
        if problem or identity(path) != before[path]:
            wrong.add(path)
        elif _linked(path, part.path):
            partial.note_whole(part)
        progress.tell("checkpoint", f"{path} {problem or 'is whole'}", percent=100 * done / max(1, total))
    return {name: found[name] for name, part in parts.items() if not part.whole and found[name] not in wrong}


def _is_near(path: Path, folder: Path) -> bool:
    return path.stat().st_dev == folder.stat().st_dev


def _linked(path: Path, target: Path) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if _cloned(path, target):
        return True
    if not path.stat().st_mode & stat.S_IROTH:  # the service user could not read it
        return False
    try:
        target.hardlink_to(path)
    except OSError:
        return False
    return True


def _cloned(path: Path, target: Path) -> bool:
    try:
        with path.open("rb") as source, target.open("xb") as clone:
            os.fchmod(clone.fileno(), 0o644)
            fcntl.ioctl(clone.fileno(), _FICLONE, source.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        return False
    return True
