"""What an operator runs beside deploy.py, on each host: the words of `sglang-box` there, followed from here."""

import shlex
import sys
from typing import Any

from pyinfra import host, state
from pyinfra.api import FactBase
from pyinfra.operations import server

from serving.paths import CONSOLE_COMMAND
from serving.problems import Problem, Refused, nearest
from serving.site import Site, load_site
from tasks.follow import who
from tasks.operations import job_done
from tasks.plan import refuse


class Said(FactBase[list[str]]):
    """The lines that a command of `sglang-box` prints; none where the playbook was never run."""

    def command(self, words: str) -> str:
        return f"test -x {CONSOLE_COMMAND} && {{ {CONSOLE_COMMAND} {words} 2>&1; true; }} || echo {_NOT_THERE!r}"

    def process(self, output: list[str]) -> list[str]:
        return list(output)


_NOT_THERE = "the playbook never ran here: pyinfra inventory.py deploy.py"


def show(*words: str) -> None:
    """Print what the command says, host by host; it changes nothing."""
    if _only():
        for line in host.get_fact(Said, words=shlex.join(words)):
            print(f"{host.print_prefix}{line}", file=sys.stderr)


def checkpoints() -> None:
    """--data remove=REPOSITORY@COMMIT (or several, with commas) removes; without it they are listed."""
    if not _only("remove"):
        return
    try:
        models = load_site({key: value for key, value in host.data.dict().items() if key != "remove"}).models
    except Refused as refusal:
        refuse(refusal)
        return
    going = [name for name in str(host.data.get("remove") or "").split(",") if name]
    if going:
        _job(f"Remove {', '.join(going)}", "checkpoints", {"models": [models], "remove": going})
    else:
        show("checkpoints", "--models", models)


def stop() -> None:
    if _only():
        _job("Stop all that the playbook started, and show that the GPUs are free", "stop", {})


def start() -> None:
    if _only():
        _job("Start the active release and prove it", "start", {})


def roll_back() -> None:
    """--data release=DIGEST names where to go; without it, to the release that was good before."""
    if _only("release"):
        wanted = host.data.get("release")
        _job(f"Go back to {wanted or 'the release that was good before'}", "rollback", {"release": wanted})


def hold() -> None:
    """--data why="..." holds; --data off=true lets go."""
    if not _only("why", "off"):
        return
    if host.data.get("off"):
        server.shell(name="Let go of the host; nothing starts", commands=[f"{CONSOLE_COMMAND} hold --off"])
    else:
        why = str(host.data.get("why") or "no reason given")
        _job(f"Stop and hold the host: {why}", "hold", {"by": who(), "why": why})


def _job(name: str, kind: str, request: dict[str, Any]) -> None:
    job_done(name=name, hostkit=CONSOLE_COMMAND, kind=kind, request=request)


def _only(*own: str) -> bool:
    """Whether `--data` names nothing but settings of the site and the command's `own` words; else this host fails."""
    known = {*own, *Site.model_fields}
    given = [key for key in state.inventory.get_override_data() if not key.startswith(("_", "ssh_"))]
    problems = [Problem("--data", key, "unknown key", nearest(key, known)) for key in given if key not in known]
    if problems:
        refuse(Refused(problems))
    return not problems
