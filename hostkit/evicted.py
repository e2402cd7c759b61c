"""What was evicted, kept so that it can be started again. Environments hold secrets: root alone reads these files."""

import json
import os
import shlex
import time
from typing import Any

from hostkit import atomic, identify, paths, processes
from hostkit.unmanaged import Server


def keep(server: Server) -> str:
    """Save argv, working folder and environment; the command that starts the server again, "" if there is none.

    Raises OSError: a server that cannot be kept is not to be stopped.
    """
    paths.EVICTED.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths.EVICTED.chmod(0o700)
    path = paths.EVICTED / f"{time.strftime('%F_%H-%M-%S')}_{server.pid}"
    folder = processes.PROC / str(server.pid)
    argv = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    cwd, environment = os.readlink(folder / "cwd"), processes.environment(server.pid)
    start = server.owner.start
    if not start and server.kind != identify.WORKER:  # a worker is what its dead server left
        script = path.with_suffix(".sh")
        atomic.write(script, _script(server, argv, cwd, environment), mode=0o700)
        start = f"bash {script}"
    document = {
        "schema": 1,
        "at": time.time(),
        "server": server.as_json(),
        "argv": argv,
        "cwd": cwd,
        "environment": environment,
        "start": start,
    }
    atomic.write(path.with_suffix(".json"), json.dumps(document, indent=1) + "\n", mode=0o600)
    return start


def _script(server: Server, argv: list[str], cwd: str, environment: dict[str, str]) -> str:
    # setpriv and env become the server: no process stays behind whose argv shows the environment.
    user = server.user
    as_user = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={_group(server.pid)}", "--init-groups"]
    words = [*as_user, "env", "-i", *(f"{name}={value}" for name, value in environment.items()), *argv]
    head = f"#!/bin/sh\n# Starts what was evicted as pid {server.pid} of {user}. The environment may hold secrets.\n"
    return f"{head}cd {shlex.quote(cwd)} && exec {shlex.join(words)}\n"


def _group(pid: int) -> int:
    return (processes.PROC / str(pid)).stat().st_gid


def records() -> list[dict[str, Any]]:
    """What is kept, oldest first; a file that cannot be read is left out."""
    found = []
    for path in sorted(paths.EVICTED.glob("*.json")):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda record: float(record["at"]))


def lines() -> list[str]:
    """For the console: what was evicted, when, and how it is started again. No environment is shown."""
    return [line for record in records() for line in _lines(record)] or ["nothing was evicted on this host"]


def _lines(record: dict[str, Any]) -> list[str]:
    server, when = record["server"], time.strftime("%F %T", time.localtime(record["at"]))
    head = f"{when}  pid {server['pid']} ({server['user']})  {server['command']}"
    again = record["start"] or "not at all: its server had ended before"
    note = comes_back(server["owner"])
    return [head, f"    start again: {again}", *([f"    {note}"] if note else [])]


def comes_back(owner: dict[str, Any]) -> str:
    """What an operator has to know of a stopped unit that is started without him."""
    if "enabled at boot" in owner["back"]:
        disable = owner["stop"].replace(" stop ", " disable ")
        return f"{owner['name']} is enabled and comes back at the next boot, unless: {disable}"
    return f"{owner['name']} comes back: {owner['back']}" if "started by" in owner["back"] else ""


def since(targets: list[dict[str, Any]]) -> list[str]:
    """The commands that start again what was evicted of these targets."""
    wanted = {(target["pid"], target["start_ticks"]) for target in targets}
    kept = [record for record in records() if (record["server"]["pid"], record["server"]["start_ticks"]) in wanted]
    return list(dict.fromkeys(record["start"] for record in kept if record["start"]))
