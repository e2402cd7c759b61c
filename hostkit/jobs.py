"""Long work as transient systemd units: it outlives the SSH connection, and a second run joins it.

A job lives in /run/sglang/jobs/<kind>/: request.json, events.jsonl, result.json. Only one job changes the host
at a time (/run/sglang/lock).
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hostkit import atomic, events, paths, systemd
from hostkit.events import Progress, Result

Job = Callable[[dict[str, Any], Progress], Result]


class Locked(Exception):
    """Another job changes this host now; the message says which and since when."""


def folder(kind: str) -> Path:
    return paths.RUN / "jobs" / kind


def unit(kind: str) -> str:
    return f"sglang-job-{kind}.service"


def start(kind: str, request: dict[str, Any]) -> None:
    """Start the job, or join it when it runs with the same request. Raises Locked when it runs with another."""
    place = folder(kind)
    place.mkdir(parents=True, exist_ok=True)
    with (place / "start.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if running(kind):
            if _without_targets(json.loads((place / "request.json").read_text())) != _without_targets(request):
                raise Locked(f"{unit(kind)} already runs with another request (journalctl -u {unit(kind)})")
            return
        for name in ("events.jsonl", "result.json"):
            (place / name).unlink(missing_ok=True)
        atomic.write(place / "request.json", json.dumps(request), mode=0o600)
        _launch(kind)


def _without_targets(request: dict[str, Any]) -> dict[str, Any]:
    """Whoever joins an eviction does not see its targets any more, and wants the same release all the same."""
    return {key: value for key, value in request.items() if key != "evict"}


def _launch(kind: str) -> None:
    me = Path(__file__).resolve().parents[1]
    systemd.run(
        "systemd-run",
        f"--unit={unit(kind)}",
        "--collect",
        "--quiet",
        "--service-type=exec",
        f"--description=SGLang host: {kind}",
        "--",
        "/usr/bin/python3",
        str(me),
        "run-job",
        kind,
    )


def running(kind: str) -> bool:
    return systemd.show(unit(kind))[unit(kind)].active in ("active", "activating", "deactivating")


def work(kind: str, job: Job) -> int:
    """Body of the transient unit: do the job under the host's lock, leave its result."""
    progress = Progress(folder(kind))
    request = json.loads((folder(kind) / "request.json").read_text())
    try:
        with host_lock(kind):
            result = job(request, progress)
    except Locked as locked:
        result = Result(events.LOCKED, str(locked))
    except Exception as error:  # the controller must hear of a fault in this code, too
        result = Result(events.FAILED, f"{type(error).__name__}: {error}", excerpt=_last_lines(error))
    progress.finish(result)
    return result.code


def _last_lines(error: Exception) -> list[str]:
    output = getattr(error, "stderr", None) or getattr(error, "stdout", None) or ""
    return str(output).strip().splitlines()[-20:]


@contextmanager
def host_lock(purpose: str) -> Iterator[None]:
    """Hold the one lock of the host. Raises Locked, naming the holder."""
    paths.RUN.mkdir(parents=True, exist_ok=True)
    with paths.LOCK.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Locked(f"another job changes this host: {file.read().strip() or 'unknown'}") from None
        file.truncate(0)
        file.write(f"{purpose}, pid {os.getpid()}, since {time.strftime('%F %T')}")
        file.flush()
        yield
        file.truncate(0)


def follow(kind: str, after: int, wait_s: float) -> dict[str, Any]:
    """New events from number `after` on, waiting up to wait_s for one; with the result once there is one."""
    deadline = time.monotonic() + wait_s
    while True:
        result = _result(kind)
        lines = events.read_events(folder(kind), after)
        if lines or result is not None or time.monotonic() >= deadline:
            return {
                "events": [json.loads(line) for line in lines],
                "next": after + len(lines),
                "result": result,
            }
        time.sleep(0.1)


def _result(kind: str) -> dict[str, Any] | None:
    path = folder(kind) / "result.json"
    alive = running(kind)
    if path.exists():
        document: dict[str, Any] = json.loads(path.read_text())
        return document
    if alive:
        return None
    lines = _journal_tail(unit(kind))
    return Result(events.FAILED, f"{unit(kind)} ended without a result", excerpt=lines).as_json()


def _journal_tail(name: str, lines: int = 20) -> list[str]:
    command = ["journalctl", f"--unit={name}", f"--lines={lines}", "--output=cat", "--no-pager"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.splitlines()


def print_json(document: dict[str, Any]) -> None:
    json.dump(document, sys.stdout)
    sys.stdout.write("\n")
