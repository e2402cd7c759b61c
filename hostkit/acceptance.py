"""What became of each release on this host: its last verdict, kept beside it, and which releases are kept at all."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from hostkit import atomic, paths, pruning, release

# Verdicts: proven; answers right but not as planned (slow, arguments not in force); dead or wrong; cut off by a power
# cut; started without any proof because the operator said so.
GOOD, NOT_ACCEPTED, FAILED, INTERRUPTED, UNPROVEN = "good", "not accepted", "failed", "interrupted", "unproven"
KEPT = 5


def _path(digest: str) -> Path:
    return paths.RELEASES / digest / "acceptance.json"


def note(digest: str, verdict: str, message: str = "", **figures: Any) -> None:
    """Keep the verdict, its time, and figures: driver (text), gates (mode), tok_s {streams: tok/s}. Raises OSError."""
    measured = {"tok_s": figures.pop("tok_s", None) or read(digest).get("tok_s") or {}}  # a quick proof measures none
    document = {"schema": 1, "verdict": verdict, "message": message, "at": time.time(), **figures, **measured}
    atomic.write(_path(digest), json.dumps(document, indent=1) + "\n")


def read(digest: str) -> dict[str, Any]:
    """The last verdict on the release, {} if there was none."""
    try:
        document: dict[str, Any] = json.loads(_path(digest).read_text())
    except (OSError, ValueError):
        return {}
    return document


def kept() -> list[str]:
    """Digests of all releases on this host, the one that was judged or staged last first."""
    folders = [path for path in paths.RELEASES.glob("*") if (path / "release.json").is_file()]
    return [path.name for path in sorted(folders, key=_when, reverse=True)]


def _when(folder: Path) -> float:
    return float(read(folder.name).get("at") or (folder / "release.json").stat().st_mtime)


def newest_good(other_than: str | None) -> str | None:
    """The release that was found good last, other than the given one: where a rollback goes."""
    return next((one for one in kept() if one != other_than and read(one).get("verdict") == GOOD), None)


def prune(keep: int = KEPT) -> list[str]:
    """Remove all but the active, the last good and `keep` more releases, and the engines that they alone needed.

    Returns the releases that went.
    """
    spared = {release.active(), release.last_good()}
    others = [digest for digest in kept() if digest not in spared]
    going = others[keep:]
    try:
        engines = pruning.engines_of(going)
    except (OSError, ValueError, KeyError):
        engines = set()
    for digest in going:
        shutil.rmtree(paths.RELEASES / digest, ignore_errors=True)
    _forget_credentials()
    pruning.forget_engines(engines, kept())
    return going


def _forget_credentials() -> None:
    """Remove keys that no release on this host needs any more."""
    try:
        documents = [json.loads((paths.RELEASES / digest / "release.json").read_text()) for digest in kept()]
    except (OSError, ValueError):
        return  # one that cannot be read may need any of them
    needed = {document["credential"] for document in documents}
    for path in paths.CREDENTIALS.glob("*.yaml"):
        if str(path) not in needed:
            path.unlink(missing_ok=True)
