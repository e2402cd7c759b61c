"""A hub that runs: its faults, and what it served. And one as a process of its own, for tests and benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from sandbox.place import replace

PROJECT = Path(__file__).parents[2]
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Running:
    """A hub by its endpoint and its state folder."""

    def __init__(self, endpoint: str, state: Path) -> None:
        self.endpoint, self.state = endpoint, state

    def set_faults(self, *rules: dict[str, Any]) -> None:
        """From the next request on these rules hold, and no others."""
        replace(self.state / "faults.json", json.dumps(rules))

    def requests(self, **wanted: object) -> list[dict[str, Any]]:
        """The requests answered so far whose fields are as wanted, such as file="model.safetensors", status=206."""
        # An answer is logged a moment after its last byte has been read.
        with _DIRECTLY.open(f"{self.endpoint}/-/settled", timeout=5):
            pass
        log = self.state / "requests.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [
            line
            for line in lines
            if line["path"] != "/-/settled" and all(line[name] == value for name, value in wanted.items())
        ]

    def forget(self) -> None:
        """Start the log anew."""
        (self.state / "requests.jsonl").unlink(missing_ok=True)

    def sent(self, **wanted: object) -> int:
        """Bytes of contents sent in those requests: what a client fetched, twice where it did so twice."""
        return sum(int(line["sent"]) for line in self.requests(**wanted) if line["range"])


class Hub(Running):
    """`with Hub(folder, state) as hub:` serves the folder until the block ends. Raises RuntimeError if it cannot.

    `options` are those of `python3 -m sandbox.model_hub`, such as rate=500e6, delay_ms=10, host="10.0.0.254".
    """

    def __init__(self, folder: Path, state: Path, **options: object) -> None:
        super().__init__("", state)
        self.folder = folder
        words = [str(word) for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        self._argv = [sys.executable, "-m", "sandbox.model_hub", str(folder), "--state", str(state), *words]

    def __enter__(self) -> Hub:
        self.process = subprocess.Popen(self._argv, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout and self.process.stderr
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the hub did not start: {self.process.stderr.read().decode()}")
        self.endpoint = str(json.loads(line)["endpoint"])
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.communicate()
