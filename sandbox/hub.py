"""The sandbox's model hub: it runs while hosts run, at the bridge, and serves the sandbox's own checkpoint.

<state folder>/hub/ holds what it serves (models/), its faults.json, which tests and people may write at any time, and
requests.jsonl, a line for each request (sandbox/model_hub).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from sandbox import network
from sandbox.errors import HubDidNotStart
from sandbox.model_hub.running import Running
from sandbox.place import Place, replace
from sandbox.processes import Process

PROJECT = Path(__file__).resolve().parent.parent
# Repositories that it serves, by the folders of this project that hold their files.
SERVED = {"sandbox/tiny": PROJECT / "sandbox" / "checkpoint" / "tiny"}
_END_LIMIT_S = 5.0


def folder(place: Place) -> Path:
    return place.root / "hub"


def endpoint(place: Place) -> str | None:
    """Its URL, as hosts and this machine reach it; None where it does not run."""
    if _process(place) is None:
        return None
    return str(json.loads((folder(place) / "running.json").read_text())["endpoint"])


def running(place: Place) -> Running:
    """The hub that runs, to set its faults and to see what it served. Raises HubDidNotStart."""
    url = endpoint(place)
    if url is None:
        raise HubDidNotStart(_log(place))
    return Running(url, folder(place))


def start(place: Place) -> None:
    """Have the hub run; the bridge must be there. Raises HubDidNotStart."""
    if _process(place):
        return
    _furnish(place)
    hub, cdn = network.hub_addresses(place)
    state = folder(place)
    argv = ["setsid", "--fork", sys.executable, "-m", "sandbox.model_hub", str(state / "models")]
    argv += ["--host", hub, "--cdn-host", cdn, "--state", str(state)]
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "SANDBOX_HUB": str(place.root)}
    with (
        _log(place).open("w") as log,
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd=PROJECT, env=environment, text=True
        ) as started,
    ):
        assert started.stdout
        line = started.stdout.readline()
    if not line:
        raise HubDidNotStart(_log(place))
    replace(state / "running.json", line)


def stop(place: Place) -> None:
    """End the hub; what is gone already is no error."""
    if process := _process(place):
        process.send(signal.SIGTERM)
        if not process.wait(_END_LIMIT_S):
            process.send(signal.SIGKILL)
            process.wait(_END_LIMIT_S)
    (folder(place) / "running.json").unlink(missing_ok=True)


def _furnish(place: Place) -> None:
    """What it serves; the faults and the log of an earlier one go."""
    shutil.rmtree(folder(place), ignore_errors=True)
    for repository, files in SERVED.items():
        link = folder(place) / "models" / repository
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(files)


def _process(place: Place) -> Process | None:
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        pid = int(json.loads((folder(place) / "running.json").read_text())["pid"])
        return Process.find(pid, f"SANDBOX_HUB={place.root}")
    return None


def _log(place: Place) -> Path:
    path = place.log_of("hub")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
