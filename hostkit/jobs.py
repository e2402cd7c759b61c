"""Long work as transient systemd units: it outlives the SSH connection, and a second run joins it.

A job lives in /run/sglang/jobs/<kind>/<id>/: request.json, events.jsonl, result.json. The id is drawn anew at each
start, so that nobody takes the events of a later job for those of his own. Only one job changes the host at a time
(/run/sglang/lock); a checkpoint is brought and checked beside it. A request may name the Python
that its job `runs_under`.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hostkit import atomic, events, paths, systemd
from hostkit.events import Progress, Result

Job = Callable[[dict[str, Any], Progress], Result]

RECOVERY = "recovery"
CHECKPOINT, CHECK = "checkpoint", "check"
# They change nothing that serves: meanwhile a server may be stopped, started and rolled back.
_BESIDE = (CHECKPOINT, CHECK)
_PROPERTIES = {
    # A login has its proxy from there, and services have not.
    CHECKPOINT: ("EnvironmentFile=-/etc/environment",),
    # The server goes first; and whoever is told of failures is told when a file turns out bad.
    CHECK: (
        "Nice=19",
        "IOSchedulingClass=idle",
        "CPUWeight=idle",
        f"LogNamespace={paths.JOURNAL_NAMESPACE}",
        f"OnFailure={paths.NOTIFIER.replace('@', '@sglang-job-check.service')}",
    ),
}
_KEPT = 5


class Locked(Exception):
    """Another job changes this host now; the message says which, whose, and since when."""


def unit(kind: str) -> str:
    return f"sglang-job-{kind}.service"


def folder(kind: str, job: str) -> Path:
    return _place(kind) / job


def _place(kind: str) -> Path:
    return paths.RUN / "jobs" / kind


def start(kind: str, request: dict[str, Any], by: str = "", after: str | None = None) -> str:
    """Start the job, or join it when it runs with the same request; returns its id.

    `by` says whose it is, to whoever meets it; `after` is a command line to run when its process is gone, however it
    went. Raises Locked when the job runs with another request.
    """
    place = _place(kind)
    place.mkdir(parents=True, exist_ok=True)
    with (place / "start.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if running(kind):
            return _joined(kind, request)
        job = secrets.token_hex(4)
        folder(kind, job).mkdir()
        atomic.write(folder(kind, job) / "request.json", json.dumps(request), mode=0o600)
        atomic.write(place / "current.json", json.dumps({"job": job, "by": by, "since": time.time()}))
        _launch(kind, job, after, request.get("runs_under", "/usr/bin/python3"))
        _forget_old(place, job)
    return job


def _joined(kind: str, request: dict[str, Any]) -> str:
    current = json.loads((_place(kind) / "current.json").read_text())
    under_way = json.loads((folder(kind, current["job"]) / "request.json").read_text())
    if _without_targets(under_way) != _without_targets(request):
        raise Locked(f"another {kind} is under way{_whose(current)}: journalctl -fu {unit(kind)}")
    return str(current["job"])


def _without_targets(request: dict[str, Any]) -> dict[str, Any]:
    """Whoever joins an eviction does not see its targets any more, and wants the same release all the same."""
    return {key: value for key, value in request.items() if key != "evict"}


def _whose(holder: dict[str, Any]) -> str:
    by = f", by {holder['by']}" if holder.get("by") else ""
    return f"{by}, since {time.strftime('%F %T', time.localtime(holder['since']))}"


def _forget_old(place: Path, current: str) -> None:
    others = [path for path in place.iterdir() if path.is_dir() and path.name != current]
    for path in sorted(others, key=lambda path: path.stat().st_mtime)[: -_KEPT + 1]:
        shutil.rmtree(path, ignore_errors=True)


def _launch(kind: str, job: str, after: str | None, python: str) -> None:
    me = Path(__file__).resolve().parents[1]
    systemd.run(
        "systemd-run",
        f"--unit={unit(kind)}",
        "--collect",
        "--quiet",
        "--service-type=exec",
        f"--description=SGLang host: {kind}",
        *([f"--property=ExecStopPost={after}"] if after else []),
        # Nobody stands behind it: killed, it begins anew.
        *(["--property=Restart=on-abnormal", "--property=RestartSec=5"] if kind == RECOVERY else []),
        *(f"--property={one}" for one in _PROPERTIES.get(kind, ())),
        "--",
        python,
        str(me),
        "run-job",
        kind,
        job,
    )


def running(kind: str) -> bool:
    return systemd.show(unit(kind))[unit(kind)].active in ("active", "activating", "deactivating")


def work(kind: str, job: str, body: Job) -> int:
    """Body of the transient unit: do the job under the host's lock, leave its result."""
    place = folder(kind, job)
    progress = Progress(place)
    request = json.loads((place / "request.json").read_text())
    if kind != RECOVERY:
        _wait_for_recovery(progress)
    try:
        with contextlib.nullcontext() if kind in _BESIDE else host_lock(kind, _by(kind), waits=kind == RECOVERY):
            result = body(request, progress)
    except Locked as locked:
        result = Result(events.LOCKED, str(locked))
    except Exception as error:  # the controller must hear of a fault in this code, too
        result = Result(events.FAILED, f"{type(error).__name__}: {error}", excerpt=_last_lines(error))
    progress.finish(result)
    return result.code


def _wait_for_recovery(progress: Progress) -> None:
    """After a power cut the host helps itself first; whoever comes meanwhile is not sent away."""
    if running(RECOVERY):
        progress.tell("waiting", f"{unit(RECOVERY)} brings back what served before")
    while running(RECOVERY):
        time.sleep(0.5)


def _by(kind: str) -> str:
    return str(json.loads((_place(kind) / "current.json").read_text())["by"])


def _last_lines(error: Exception) -> list[str]:
    output = getattr(error, "stderr", None) or getattr(error, "stdout", None) or ""
    return str(output).strip().splitlines()[-20:]


@contextmanager
def host_lock(purpose: str, by: str = "", waits: bool = False) -> Iterator[None]:
    """Hold the one lock of the host. Raises Locked, naming the holder, unless it `waits` for it."""
    paths.RUN.mkdir(parents=True, exist_ok=True)
    with paths.LOCK.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            file.seek(0)
            raise Locked(f"another job changes this host: {_holder(file.read())}") from None
        file.truncate(0)
        file.write(json.dumps({"purpose": purpose, "pid": os.getpid(), "by": by, "since": time.time()}))
        file.flush()
        yield
        file.truncate(0)


def _holder(text: str) -> str:
    try:
        holder = json.loads(text)
    except ValueError:
        return "one that just began"
    return f"{holder['purpose']}, pid {holder['pid']}{_whose(holder)}"


def follow(kind: str, job: str, after: int, wait_s: float) -> dict[str, Any]:
    """New events from number `after` on, waiting up to wait_s for one; with the result once there is one."""
    deadline = time.monotonic() + wait_s
    while True:
        result = _result(kind, job)
        found, following = events.read_events(folder(kind, job), after)
        if found or result is not None or time.monotonic() >= deadline:
            return {"events": found, "next": following, "result": result}
        time.sleep(0.1)


def _result(kind: str, job: str) -> dict[str, Any] | None:
    path = folder(kind, job) / "result.json"
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
