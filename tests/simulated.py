"""Starts the simulated engine here, as a unit's ExecStart would, and asks it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostkit import client
from tests.playbook import ROOT

FOLDER = ROOT / "sandbox/simulated"
MODEL = ROOT / "sandbox/checkpoint/tiny"
LIMIT_S = 10.0


@dataclass(frozen=True)
class Engine:
    """A running server, with its log and the way to ask it."""

    process: subprocess.Popen[bytes]
    port: int
    log_file: Path

    @property
    def server(self) -> client.Server:
        return client.Server(f"http://127.0.0.1:{self.port}")

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def health(self) -> int | None:
        return client.status(self.server, "/health", within_s=LIMIT_S)

    def json(self, path: str) -> Any:
        return client.get_json(self.server, path, within_s=LIMIT_S)

    def ask(self, question: str, within_s: float = LIMIT_S, max_tokens: int = 64) -> client.Answer:
        return client.chat(self.server, "tiny", question, within_s, max_tokens)

    def ask_at_once(self, questions: Sequence[str], max_tokens: int = 64) -> list[str]:
        with ThreadPoolExecutor(len(questions)) as pool:
            return list(pool.map(lambda question: self.ask(question, max_tokens=max_tokens).text, questions))

    def wait_for(self, part: str) -> None:
        until(lambda: part in self.log, f"{part!r} in the log:\n{self.log[-2000:]}")

    def wait_until_healthy(self) -> Engine:
        until(lambda: self.health() == 200, f"/health 200:\n{self.log[-2000:]}")
        return self

    def wait_for_end(self) -> int:
        return self.process.wait(LIMIT_S)

    def children(self) -> dict[str, int]:
        """Process id by the name that `ps -o comm` shows."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {Path(f"/proc/{pid}/comm").read_text().strip(): int(pid) for pid in found}


@contextmanager
def engine(
    folder: Path, *words: str, fault: str = "", port: int = 0, file: dict[str, Any] | None = None, **environment: str
) -> Iterator[Engine]:
    """Start it with `words` added to its command line; nothing of it is left afterwards."""
    port = port or free_port()
    (folder / "engine.json").write_text(json.dumps(file or {}))
    log = folder / "engine.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command(), "--port", str(port), *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": str(FOLDER),
                "SANDBOX_ENGINE": str(folder / "engine.json"),
                "SANDBOX_ENGINE_FAULT": fault,
                **environment,
            },
        )
    try:
        yield Engine(process, port, log)
    finally:
        kill_session(process.pid)
        process.wait()


def command() -> list[str]:
    arguments = ["--model-path", str(MODEL), "--served-model-name", "tiny", "--decode-log-interval", "8"]
    return [sys.executable, "-m", "sglang.launch_server", *arguments]


def kill_session(leader: int) -> None:
    """End a session's processes: also those that outlived their parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            session = int(stat.read_text().rpartition(")")[2].split()[3])
        except OSError:  # gone meanwhile
            continue
        if session == leader:
            os.kill(int(stat.parent.name), 9)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def cpu_s(pid: int) -> float:
    """Processor time (s) that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(0.02)
