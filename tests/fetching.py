"""A checkpoint job without a host around it: in this process, or in one that can be killed."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostkit import checkpoint, paths, stamps
from hostkit.events import Progress, Result

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY, REVISION = "owner/model", "main"
# Seconds where the real ones are minutes.
LIMITS = {"silence_s": 1.0, "slow_s": 2.0, "patience_s": 3.0, "pause_s": 0.05, "longest_pause_s": 0.4, "sync_s": 0.2}


@dataclass
class Place:
    """A folder of models on a host, and where its stamps are."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "models" / REPOSITORY / REVISION

    @property
    def partial(self) -> Path:
        return self.folder.with_name(f"{REVISION}.incomplete")

    def request(self, files: Mapping[str, Any] | None, *sources: str, **changes: Any) -> dict[str, Any]:
        request = {"folder": str(self.folder), "repository": REPOSITORY, "revision": REVISION, "files": files}
        rest: dict[str, Any] = {"sources": sources, "adopt": [], "token_file": None, "streams": 4, "limits": LIMITS}
        return {**request, **rest, **changes}

    def bring(self, files: Mapping[str, Any] | None, *sources: str, **changes: Any) -> Result:
        """The job, in this process."""
        (self.root / "job").mkdir(parents=True, exist_ok=True)
        paths.CHECKPOINT_STAMPS = self.root / "stamps"
        return checkpoint.bring(self.request(files, *sources, **changes), Progress(self.root / "job"))

    def begin(self, files: Mapping[str, Any], *sources: str, **changes: Any) -> subprocess.Popen[str]:
        """The job, in a process of its own; its last line is the result's code and message."""
        (self.root / "job").mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "tests.fetching", str(self.root)]
        environment = {**os.environ, "REQUEST": json.dumps(self.request(files, *sources, **changes))}
        return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def is_whole(self, files: Mapping[str, Any]) -> bool:
        """As an eye sees it that is not the code's: every byte, a stamp that holds, and nothing left over."""
        right = all(_sha256(self.folder / name) == file["sha256"] for name, file in files.items())
        paths.CHECKPOINT_STAMPS = self.root / "stamps"
        return right and stamps.is_verified(self.folder) is None and not self.partial.exists()


def manifest(folder: Path) -> dict[str, Any]:
    """Sizes and sha256 of the files below a folder."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: {"size": path.stat().st_size, "sha256": _sha256(path)} for name, path in found.items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    root = Path(sys.argv[1])
    paths.CHECKPOINT_STAMPS = root / "stamps"
    result = checkpoint.bring(json.loads(os.environ["REQUEST"]), Progress(root / "job"))
    print(result.code, result.message, flush=True)


if __name__ == "__main__":
    main()
