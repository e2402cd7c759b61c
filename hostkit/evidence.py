"""The parts of a capture: what is asked, of whom, and how long it may take."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hostkit import client, journal, processes, redact, release
from hostkit.side_by_side import Part, Say
from hostkit.systemd import Unit

_LINES = 5000
_PROC_FILES = ("status", "wchan", "stack", "io")
# Each py-spy stops the process that it reads for a moment and takes a core.
_PY_SPIES = threading.Semaphore(max(4, os.cpu_count() or 0))
_PY_SPY_S = 6.0


def parts(unit: Unit, described: dict[str, Any] | None, document: dict[str, Any], secrets: list[str]) -> Iterable[Part]:
    """All parts for the unit; what is asked over HTTP only where the release describes it."""
    service = unit.name
    yield _command("journal", 12, *journal.reader(f"--lines={_LINES}", *journal.current([unit])))
    yield _command("kernel", 10, "journalctl", "--dmesg", "--grep=Xid|NVRM", "--lines=1000", "--no-pager")
    yield _command("systemctl-status", 5, "systemctl", "status", "--no-pager", "--full", "--lines=0", service)
    yield _command("systemctl-show", 5, "systemctl", "show", service)
    yield _command("nvidia-smi", 12, "nvidia-smi", "-q")
    yield _command(
        "gpu-processes", 12, "nvidia-smi", "--query-compute-apps=gpu_bus_id,pid,name,used_gpu_memory", "--format=csv"
    )
    if described is not None:
        server = client.Server(release.base_url(described), secrets[0] if secrets else None)
        yield Part("health", "health.txt", 6, lambda say: _health(server, say))
        yield Part("server_info", "server_info.json", 6, lambda say: _server_info(server, say))
    pids = processes.of_control_group(unit.control_group)
    yield from (Part(f"process {pid}", "processes.txt", 5, _telling(_process, pid)) for pid in pids)
    if py_spy := _py_spy(document):
        yield from (Part(f"py-spy {pid}", "py-spy.txt", 15, _telling(_python_stack, pid, py_spy)) for pid in pids)


def _telling(tell: Callable[..., None], *arguments: Any) -> Callable[[Say], None]:
    return lambda say: tell(*arguments, say)


def _command(name: str, limit_s: float, *command: str) -> Part:
    return Part(name, f"{name}.txt", limit_s, lambda say: _output(command, limit_s - 1, say))


def _output(command: Iterable[str], limit_s: float, say: Say) -> None:
    """Raises TimeoutError, once what the program had printed is said."""
    try:
        done = subprocess.run(
            [*command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        say((late.stdout or b"").decode(errors="replace"))
        raise TimeoutError(f"killed after {limit_s:.0f} s") from None
    say(done.stdout.decode(errors="replace").rstrip() or f"(no output, exit status {done.returncode})")


def _health(server: client.Server, say: Say) -> None:
    began = time.monotonic()
    status = client.status(server, "/health", within_s=5)
    say(f"GET {server.base}/health: {status or 'no answer'} after {time.monotonic() - began:.2f} s")


def _server_info(server: client.Server, say: Say) -> None:
    say(json.dumps(redact.fields(client.get_json(server, "/server_info", within_s=5)), indent=1))


def _process(pid: int, say: Say) -> None:
    """What can hang, and takes the process's lock on its memory, comes last."""
    say(f"== {pid}")
    for name in _PROC_FILES:
        say(f"-- {name}\n{_read(Path(f'/proc/{pid}/{name}'))}")
    say("-- threads: state, wchan, CPU ticks (user, system)")
    for folder in sorted(Path(f"/proc/{pid}/task").glob("*")):
        say(_thread(folder))
    found = processes.read(pid)
    say(f"-- command\n{found.command if found else '(gone)'}")


def _thread(folder: Path) -> str:
    fields = _read(folder / "stat").rpartition(")")[2].split()
    name, where = _read(folder / "comm"), _read(folder / "wchan")
    return f"{folder.name} {name}: {fields[0]} {where} {fields[11]} {fields[12]}" if len(fields) > 12 else folder.name


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError as problem:
        return f"({problem.strerror})"


def _py_spy(document: dict[str, Any]) -> str | None:
    own = Path(document.get("engine", {}).get("folder", "/nonexistent")) / "bin" / "py-spy"
    return str(own) if own.is_file() else shutil.which("py-spy")


def _python_stack(pid: int, py_spy: str, say: Say) -> None:
    with _PY_SPIES:
        say(f"== {pid}")
        _output((py_spy, "dump", "--pid", str(pid)), _PY_SPY_S, say)
