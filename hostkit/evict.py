"""Stops servers that the playbook did not start, when an operator asked for it: by process, never by pattern.

Each is found anew and must be what the look saw: pid, start time, executable and module, GPU or port. Its owner is
stopped first, or it comes back; and how it is started again is kept before anything is stopped.
"""

import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hostkit import ending, events, evicted, gates, identify, ours, processes, systemd, unmanaged
from hostkit.events import Progress, Result, Verdict
from hostkit.unmanaged import Server

Target = dict[str, Any]
WITHIN_S = 60.0
# A unit has its own time to stop, 90 s by systemd's default.
OWNER_WITHIN_S = 180.0
# A shell's endless loop or a process manager starts its server again within this time.
_RESPAWN_S = 1.5


def leaving(targets: Sequence[Target]) -> frozenset[tuple[int, int]]:
    """(pid, start ticks) of all processes that the targets' eviction will end: the gates let them pass."""
    servers = _found(targets).values()
    return frozenset(process for server in servers if not server.owner.reason for process in server.pids)


def evict(targets: Sequence[Target], progress: Progress, within_s: float = WITHIN_S) -> list[Verdict]:
    """Stop the targets as the look reported them. What is no longer the same is left alone.

    within_s is the time (s) from TERM to KILL. Raises gates.NotMet when one cannot be stopped or comes back at once.
    """
    verdicts = []
    for target in targets:
        server = _found([target]).get(int(target["pid"]))
        if server is None:
            evidence = f"pid {target['pid']} is no longer what was seen: left alone"
        else:
            evidence = _evict(server, progress, within_s)
        progress.tell("evict", evidence)
        verdicts.append(Verdict("evicted", True, evidence, within_s))
    return verdicts


def told(result: Result, targets: Sequence[Target]) -> Result:
    """The result, with how the evicted servers are started again where the new one does not serve."""
    commands = evicted.since(list(targets)) if targets and result.code != events.OK else []
    if not commands:
        return result
    return replace(result, message=f"{result.message}. Evicted, and started again by: {'; '.join(commands)}")


def _found(targets: Sequence[Target]) -> dict[int, Server]:
    """The servers of today that are the targets, by pid."""
    wanted = {int(target["pid"]): target for target in targets}
    servers = unmanaged.find(ours.services()) if targets else []
    return {server.pid: server for server in servers if server.pid in wanted and is_same(server, wanted[server.pid])}


def is_same(server: Server, target: Target) -> bool:
    """Whether it is the very process that was seen, runs what it ran, and still is in the way by a GPU or port."""
    ran = (target["pid"], target["start_ticks"], target["kind"], target["command"])
    in_the_way = server.gpus.keys() & set(target["gpus"]) or set(server.ports) & set(target["ports"])
    return (server.pid, server.start_ticks, server.kind, server.command) == ran and bool(in_the_way)


def _evict(server: Server, progress: Progress, within_s: float) -> str:
    owner, what = server.owner, f"pid {server.pid} of {server.user} ({server.kind})"
    if owner.reason:
        raise gates.NotMet(f"{what} cannot be evicted: {owner.reason}; stop it yourself")
    start = evicted.keep(server)
    progress.tell("evict", f"stopping {what}{f' by `{owner.stop}`' if owner.stop else ''}: {server.command[:120]}")
    began = time.monotonic()
    if owner.stop:
        _stop_owner(server)
    else:
        ending.end(server.pids, within_s)
    _stays_away(server)
    notes = [f"{what} stopped after {time.monotonic() - began:.1f} s", evicted.comes_back(owner.as_json())]
    again = f"started again by: {start}" if start else "it was what a dead server left"
    return "; ".join(note for note in [*notes, again] if note)


def _stop_owner(server: Server) -> None:
    """Stop the unit or container; its processes then are gone. Raises gates.NotMet."""
    command = shlex.split(server.owner.stop)
    try:
        systemd.run(*command, timeout_s=OWNER_WITHIN_S)
    except (subprocess.SubprocessError, OSError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        raise gates.NotMet(f"`{server.owner.stop}` failed: {said[:300]}") from None
    ending.wait_until_gone(server.pids, 10.0)


def _stays_away(server: Server) -> None:
    """Raises gates.NotMet when something that systemd does not know of starts the same server again."""
    deadline = time.monotonic() + (0.0 if server.owner.stop or server.kind == identify.WORKER else _RESPAWN_S)
    while time.monotonic() < deadline:
        for other in unmanaged.find(ours.services(), uses=[], listeners=[]):
            if other.command == server.command and other.start_ticks > server.start_ticks:
                parent = processes.read((processes.ancestors(other.pid) or [1])[0])
                by = gates.describe(parent)
                raise gates.NotMet(f"pid {server.pid} was stopped, but was started again as pid {other.pid} by {by}")
        time.sleep(0.1)
