"""Inference servers on this host that no release of the playbook started: each a whole process tree."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hostkit import gpus, identify, owner, processes
from hostkit.owner import Owner

Listening = tuple[str, int, int | None]


@dataclass(frozen=True)
class Server:
    """A positively identified server. `pids` are those of its tree with their start ticks; gpus in MiB by PCI address.

    age_s in seconds; start_ticks in clock ticks since boot, which tell a process from a later one of the same pid.
    """

    pid: int
    start_ticks: int
    pids: list[tuple[int, int]]
    user: str
    age_s: int
    command: str
    kind: str
    gpus: dict[str, int]
    ports: list[int]
    owner: Owner

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def find(
    ours: Iterable[str], uses: list[gpus.Use] | None = None, listeners: list[Listening] | None = None
) -> list[Server]:
    """The servers outside of the units `ours`. Who has asked for uses and listeners already hands them on."""
    uses = _uses() if uses is None else uses
    holders, own = {use.pid for use in uses}, set(ours)
    kinds = {pid: kind for pid in processes.pids() if (kind := identify.kind_of(pid, holders))}
    owners = {pid: its for pid in kinds if (its := _owner(pid)) and not _is_ours(its, own)}
    if not owners:
        return []
    trees = dict(_trees(owners))
    listeners = processes.listeners() if listeners is None else listeners
    everyone = {pid for tree in trees.values() for pid in tree}
    settled = {pid: owner.settled(owners[pid], pid, everyone) for pid in trees}
    found = (_server(pid, kinds[pid], trees[pid], settled[pid], uses, listeners) for pid in sorted(trees))
    return [server for server in found if server]


def _is_ours(belongs_to: Owner, own: set[str]) -> bool:
    return belongs_to.kind == "unit" and belongs_to.name in own


def _owner(pid: int) -> Owner | None:
    try:
        return owner.of(pid)
    except OSError:
        return None


def _uses() -> list[gpus.Use]:
    """Without a driver that answers, a server is still known by what it is and by its ports."""
    try:
        return gpus.uses()
    except gpus.DriverError:
        return []


def _trees(kinds: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """(leading pid, all pids of its tree); a server that another one started belongs to that one's tree."""
    parents = processes.parents()
    identified = set(kinds)
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    for pid in identified:
        if identified.isdisjoint(_above(pid, parents)):
            tree = [pid]
            for member in tree:
                tree += children.get(member, [])
            yield pid, tree


def _above(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def _server(
    pid: int, kind: str, tree: list[int], belongs_to: Owner, uses: list[gpus.Use], listeners: list[Listening]
) -> Server | None:
    """None when it ended while it was looked at."""
    process = processes.read(pid)
    if process is None:
        return None
    held: dict[str, int] = {}
    for use in uses:
        if use.pid in tree:
            held[use.pci] = held.get(use.pci, 0) + use.used_mib
    return Server(
        pid=pid,
        start_ticks=process.start_ticks,
        pids=[(member, ticks) for member in tree if (ticks := processes.ticks_or_none(member)) is not None],
        user=process.user,
        age_s=process.age_s,
        command=process.command,
        kind=kind,
        gpus=held,
        ports=sorted({port for _, port, holder in listeners if holder in tree}),
        owner=belongs_to,
    )
