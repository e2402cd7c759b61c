"""Ways to get a checkpoint from a hub onto this machine, each with its hashes checked as far as it does so."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kit import timed
from tests.fetching import REPOSITORY, Place

STREAMS = 16
_CURL = (
    'f={folder}/$0; echo "$1  $f" | sha256sum --status -c - 2>/dev/null || '
    '{{ curl -sSfL -C - -o "$f" {base}/$0 && echo "$1  $f" | sha256sum --status -c -; }}'
)


@dataclass(frozen=True)
class Ended:
    """A process that ended: its wall time (s), peak of its own memory (MiB), time on cores with its children (s)."""

    seconds: float
    peak_mib: float
    cpu_s: float


@dataclass
class Fetcher:
    """A command that fills `folder`; run again after a kill it goes on as well as it can."""

    name: str
    argv: list[str]
    folder: Path
    environment: Mapping[str, str]

    def begin(self) -> "Running":
        return Running(self)

    def run(self) -> Ended:
        return self.begin().wait()

    @property
    def there(self) -> int:
        """Bytes that it has on disk."""
        return sum(map(_blocks, self.folder.parent.rglob("*"))) * 512


class Running:
    """In a session of its own, so that a kill takes all of its processes."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher, self._began = fetcher, time.monotonic()
        environment = {**os.environ, **fetcher.environment}
        self._log = (fetcher.folder.parent / f"{fetcher.name}.log").open("wb")
        self.process = subprocess.Popen(
            fetcher.argv, cwd=timed.ROOT, env=environment, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def wait(self) -> Ended:
        """Raises timed.Failed unless it ended with 0."""
        _, status, used = os.wait4(self.process.pid, 0)
        seconds = time.monotonic() - self._began
        self._log.close()
        if os.waitstatus_to_exitcode(status):
            raise timed.Failed(f"{self._fetcher.name} ended with {status}: {Path(self._log.name).read_text()[-2000:]}")
        return Ended(seconds, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime)

    def kill_at(self, bytes_there: int) -> None:
        """kill -9 when so much is on disk. Raises timed.Failed when it ends before."""
        while self._fetcher.there < bytes_there:
            if self.process.poll() is not None:
                raise timed.Failed(f"{self._fetcher.name} ended before it was killed")
            time.sleep(0.02)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks
    except FileNotFoundError:  # renamed meanwhile
        return 0


def ours(root: Path, endpoint: str, files: Mapping[str, Any]) -> Fetcher:
    place = Place(root)
    (root / "job").mkdir(parents=True)
    place.folder.parent.mkdir(parents=True)
    request = place.request(files, endpoint, streams=STREAMS, limits={})
    environment = {"REQUEST": json.dumps(request)}
    return Fetcher("hostkit", [sys.executable, "-m", "tests.fetching", str(root)], place.folder, environment)


def curl(root: Path, endpoint: str, files: Mapping[str, Any]) -> Fetcher:
    """curl for many files at once, each hashed by sha256sum as soon as it is there."""
    folder = _folder(root)
    listed = root / "list"
    listed.write_text("".join(f"{name} {file['sha256']}\n" for name, file in files.items()))
    script = _CURL.format(folder=folder, base=f"{endpoint}/{REPOSITORY}/resolve/main")
    argv = ["xargs", "-a", str(listed), "-P", str(STREAMS), "-n", "2", "sh", "-c", script]
    return Fetcher("curl + sha256sum", argv, folder, {})


def aria2(root: Path, endpoint: str, files: Mapping[str, Any]) -> Fetcher:
    """aria2 with several connections a file; it checks the hash itself. Raises timed.Failed where it is missing."""
    if not shutil.which("aria2c"):
        raise timed.Failed("aria2c is missing: apt-get install aria2")
    folder = _folder(root)
    lines = [
        f"{endpoint}/{REPOSITORY}/resolve/main/{name}\n out={name}\n checksum=sha-256={file['sha256']}\n"
        for name, file in files.items()
    ]
    (root / "list").write_text("".join(lines))
    argv = ["aria2c", "-q", "-c", "-i", str(root / "list"), "-d", str(folder), "-j", str(STREAMS), "-x", "4", "-s", "4"]
    return Fetcher("aria2c", [*argv, "--file-allocation=none", "--no-conf"], folder, {})


def hf(root: Path, endpoint: str, _: Mapping[str, Any]) -> Fetcher:
    """The hub's own client: it checks no hash."""
    folder = _folder(root)
    own = {"HF_HOME": str(root / "home"), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    argv = [str(Path(sys.prefix) / "bin/hf"), "download", REPOSITORY, "--local-dir", str(folder)]
    return Fetcher(
        "hf download", [*argv, "--max-workers", str(STREAMS)], folder, {**own, "HF_ENDPOINT": endpoint, "HF_TOKEN": ""}
    )


ALL = (ours, curl, aria2, hf)


def _folder(root: Path) -> Path:
    folder = root / "folder"
    folder.mkdir(parents=True)
    return folder
