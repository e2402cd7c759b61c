"""Talks to systemd: the state of units, and commands with a time limit."""

import subprocess
import time
from dataclasses import dataclass

_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,MainPID,InvocationID,NRestarts,NeedDaemonReload,DropInPaths,"
    "Result,ExecMainStatus,ExecMainCode,ControlGroup,ActiveEnterTimestamp"
)


@dataclass(frozen=True)
class Unit:
    """What `systemctl show` says of a unit."""

    name: str
    load: str
    active: str
    sub: str
    enabled: str
    main_pid: int
    invocation_id: str
    restarts: int
    needs_reload: bool
    drop_ins: list[str]
    result: str
    ended: str
    control_group: str
    since: str


def run(*command: str, timeout_s: float = 30, check: bool = True) -> str:
    """Standard output of a command. Raises subprocess.CalledProcessError."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=check)
    return done.stdout


def show(*names: str, timeout_s: float = 30) -> dict[str, Unit]:
    """The named units, each in one call's time; a unit that does not exist has load "not-found"."""
    if not names:
        return {}
    question = ("systemctl", "show", f"--property={_PROPERTIES}", "--", *names)
    try:
        text = run(*question, timeout_s=timeout_s)
    except subprocess.SubprocessError:  # systemd itself may just be exchanged by an upgrade
        time.sleep(1)
        text = run(*question, timeout_s=timeout_s)
    units = [_unit(block) for block in text.strip().split("\n\n")]
    return {unit.name: unit for unit in units}


def _unit(block: str) -> Unit:
    values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    return Unit(
        name=values["Id"],
        load=values["LoadState"],
        active=values["ActiveState"],
        sub=values["SubState"],
        enabled=values.get("UnitFileState", ""),
        main_pid=int(values.get("MainPID") or 0),
        invocation_id=values.get("InvocationID", ""),
        restarts=int(values.get("NRestarts") or 0),
        needs_reload=values.get("NeedDaemonReload") == "yes",
        drop_ins=values.get("DropInPaths", "").split(),
        result=values.get("Result", ""),
        ended=_ended(values.get("ExecMainCode", ""), values.get("ExecMainStatus", "")),
        control_group=values.get("ControlGroup", ""),
        since=values.get("ActiveEnterTimestamp", ""),
    )


def _ended(code: str, status: str) -> str:
    """How the main process ended, in words; the codes are those of waitid(2)."""
    words = {"1": f"exit status {status}", "2": f"killed by signal {status}", "3": f"dumped core, signal {status}"}
    return words.get(code, "not ended")
