"""The note that a unit's ExecStartPre writes: what the process about to start is started from."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from hostkit import atomic, integrity, paths


def note(unit: str, invocation_id: str | None = None) -> None:
    """Write /run/sglang/<unit>.json: invocation id, active release, engine intact or not, digests of its files.

    It is the unit's own start that notes this, but for a process that another release takes over as it runs.
    """
    digest = paths.ACTIVE.readlink().name if paths.ACTIVE.is_symlink() else None
    release = _release(digest)
    document = {
        "schema": 1,
        "unit": unit,
        "invocation_id": invocation_id or os.environ.get("INVOCATION_ID", ""),
        "release": digest,
        "engine_intact": bool(release) and integrity.is_intact(_engine(release, unit)),
        "files": {str(path): digest_without_comments(path) for path in read_by_systemd(unit)} | _credential(release),
    }
    atomic.write(_path(unit), json.dumps(document), mode=0o600)


def _release(digest: str | None) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads((paths.RELEASES / str(digest) / "release.json").read_text())
    except (OSError, ValueError):
        return {}
    return document


def _engine(release: dict[str, Any], service: str) -> Path:
    """Folder of the unit's own engine: a router has another than the servers."""
    units = {f"{unit['name']}.service": unit for unit in release["units"]}
    return Path(units.get(service, {}).get("engine", release["engine"])["folder"])


def _credential(release: dict[str, Any]) -> dict[str, str]:
    """Digest of the credential, by which a process that was started with another key is seen."""
    path = Path(release.get("credential") or "/nonexistent")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest()} if path.is_file() else {}


def read_by_systemd(unit: str) -> list[Path]:
    """The files that decide what a start of the unit is: its own, its drop-ins, its environment."""
    name = unit.removesuffix(".service")
    own = [paths.CONFIG / "nccl.env", paths.CONFIG / f"{name}.env", paths.UNITS / unit]
    return [path for path in [*own, *drop_ins(unit)] if path.is_file()]


# Where `systemctl edit`, `edit --runtime` and `set-property` (with and without --runtime) put what they are told.
DROP_IN_FOLDERS = (
    paths.UNITS,
    Path("/etc/systemd/system.control"),
    Path("/run/systemd/system"),
    Path("/run/systemd/system.control"),
)


def drop_ins(unit: str) -> list[Path]:
    """Files of `systemctl edit` and its like, which no release has."""
    return sorted(path for folder in DROP_IN_FOLDERS for path in (folder / f"{unit}.d").glob("*"))


def read(unit: str) -> dict[str, Any] | None:
    try:
        document = json.loads(_path(unit).read_text())
    except (OSError, ValueError):
        return None
    return {key: document.get(key) for key in ("invocation_id", "release", "engine_intact", "files")}


def digest_without_comments(path: Path) -> str:
    """sha256 of what the file says to systemd: a changed comment is no change of what starts."""
    return digest_of_text(path.read_text())


def digest_of_text(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    said = "\n".join(line for line in lines if line and not line.startswith(("#", ";")))
    return hashlib.sha256(said.encode()).hexdigest()


def runs_from(unit: str, invocation_id: str, release: dict[str, Any]) -> bool:
    """Whether the process of this invocation was started from exactly this release, files, engine and all."""
    seen = read(unit)
    if seen is None or not seen["engine_intact"]:
        return False
    wanted = {file["path"]: digest_of_text(file["text"]) for file in release["files"]} | _credential(release)
    same_files = all(wanted.get(path) == digest for path, digest in seen["files"].items())
    return same_files and (seen["invocation_id"], seen["release"]) == (invocation_id, release["digest"])


def _path(unit: str) -> Path:
    return paths.RUN / f"{unit.removesuffix('.service')}.json"
