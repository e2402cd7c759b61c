"""Patches of an engine: diffs applied in order to its installed packages, before anybody uses them."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from hostkit import record, uv

_FILE = re.compile(r"^(?:---|\+\+\+) ([^\t\n]+)", re.MULTILINE)


def apply(environment: Path, request: dict[str, Any]) -> dict[str, str | None]:
    """Apply the request's patches; returns the sha256 of each file they touched, None for one that is gone.

    Paths are relative to the environment. Raises uv.Failed for a diff that does not apply exactly.
    """
    if not request.get("patches"):
        return {}
    document = json.loads(Path(request["patches"]).read_text(encoding="utf-8"))
    folder, strip = record.packages_folder(environment), int(document["strip"])
    touched: set[Path] = set()
    for patch in document["patches"]:
        _apply(folder, patch["name"], patch["text"], strip)
        touched |= {folder / path for path in _named(patch["text"], strip)}
    _compile(environment, [path for path in touched if path.suffix == ".py" and path.is_file()])
    return {str(path.relative_to(environment)): _sha256(path) for path in sorted(touched)}


def _apply(folder: Path, name: str, text: str, strip: int) -> None:
    command = [
        "patch",
        f"--strip={strip}",
        "--fuzz=0",
        "--batch",
        "--forward",
        "--no-backup-if-mismatch",
        "--reject-file=-",
    ]
    done = subprocess.run(
        [*command, f"--directory={folder}"], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = next((line for line in lines if "FAILED" in line or "find file" in line), lines[-1] if lines else "")
        raise uv.Failed(
            f"the patch {name} does not apply: {told.strip()[:200]}; make it for these versions", done.stdout
        )


def _named(text: str, strip: int) -> set[str]:
    """Files that a diff speaks of, relative to the folder it is applied in."""
    names = {name.strip() for name in _FILE.findall(text)} - {"/dev/null"}
    return {"/".join(name.split("/")[strip:]) for name in names}


def _compile(environment: Path, sources: list[Path]) -> None:
    """Their bytecode again: nobody but root could write it later."""
    if sources:
        command = [str(environment / "bin/python"), "-m", "compileall", "-q", "-f", *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise uv.Failed(f"what the patches make is no Python: {done.stdout.strip()[-200:]}; mend them", done.stdout)


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
