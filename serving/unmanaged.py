"""Inference servers that the playbook did not start: which of them are in the way of a plan, and what to do."""

import re
from collections.abc import Iterator
from typing import Any

from serving.plan import Plan
from serving.problems import Problem
from serving.schemas import HostState, Server, age

EVICT = "--data evict=true"


def in_the_way(plan: Plan) -> list[Server]:
    """Those that hold a GPU or a port which the plan needs."""
    cards, ports = _needed(plan)
    return [server for server in plan.state.servers if server.gpus.keys() & cards or ports & set(server.ports)]


def _needed(plan: Plan) -> tuple[set[str], set[int]]:
    """(PCI addresses, ports) of all units."""
    ports = {port for unit in plan.units for port in unit.ports.values()}
    return {gpu.pci for unit in plan.units for gpu in unit.gpus}, ports


def to_evict(plan: Plan) -> list[Server]:
    """Those in the way, where the operator asked for it. None is left that cannot be evicted: refused before."""
    return in_the_way(plan) if plan.wanted.site.evict else []


def target(server: Server) -> dict[str, Any]:
    """What the host needs to find the server again; its age alone changes from look to look."""
    return server.model_dump(exclude={"age_s"})


def is_in_one(pid: int, state: HostState) -> bool:
    """Whether the process belongs to an identified server."""
    return any(pid == member for server in state.servers for member, _ in server.pids)


def in_the_way_problems(plan: Plan) -> Iterator[Problem]:
    """One line a server that is in the way and stays there in this run."""
    for server in in_the_way(plan):
        if not plan.wanted.site.evict or server.owner.reason:
            yield Problem(plan.state.hostname, _held(server, plan), _what(server), _remedy(server))


def _held(server: Server, plan: Plan) -> str:
    """What it holds, as an operator calls it: 'GPU 0,1 and port 30000'. Ports that nobody needs are left out."""
    needed = sorted(_needed(plan)[1] & set(server.ports))
    cards = f"GPU {','.join(cards_of(server, plan.state))}" if server.gpus else ""
    ports = f"port {','.join(map(str, needed))}" if needed else ""
    return " and ".join(part for part in (cards, ports) if part)


def ports_of(server: Server) -> list[str]:
    """The ports that its command names, or all: an engine opens a dozen more between its own processes."""
    named = [str(port) for port in server.ports if re.search(rf"\b{port}\b", server.command)]
    return named or [str(port) for port in server.ports]


def cards_of(server: Server, state: HostState) -> list[str]:
    """Numbers in PCI order."""
    numbers = {gpu.pci: str(gpu.index) for gpu in state.gpus}
    return sorted(numbers.get(pci, pci) for pci in server.gpus)


def _what(server: Server) -> str:
    memory = f"{server.gib:.1f} GiB, " if server.gpus else ""
    who = f"pid {server.pid} ({server.user}, {age(server.age_s)})"
    return f"{memory}held by the {server.kind} {who}, {owner_of(server)}: {short_command(server)}"


def short_command(server: Server) -> str:
    """Its beginning, without the folder of its interpreter."""
    program, _, words = server.command.partition(" ")
    return f"{program.rpartition('/')[2]} {words}"[:120].rstrip()


def owner_of(server: Server) -> str:
    """Whose it is, and what brings it back once stopped."""
    owner = server.owner
    if owner.kind == "none":
        return "of no unit"
    name = f"container {owner.name}" if owner.kind == "container" else owner.name
    return f"{name} ({owner.back} brings it back)" if owner.back else name


def _remedy(server: Server) -> str:
    yourself = server.owner.stop or f"kill {server.pid}"
    if server.owner.reason:
        return f"it cannot be evicted, because {server.owner.reason}; stop it yourself and run again"
    return f"stop it ({yourself}), or have it stopped in this run: {EVICT}"
