"""The CSV answers of nvidia-smi: --query-gpu and --query-compute-apps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox.gpu.cards import Card
from sandbox.gpu.devices import COMPUTE_CAPABILITY, MEMORY_MIB, MODEL, POWER_LIMIT_W
from sandbox.gpu.holders import Holder
from sandbox.gpu.state import State

# Old names that the tool still takes; the header shows the current one.
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "power.management_limit": "power.limit",
}
PROCESS_ALIASES = {"name": "process_name", "used_memory": "used_gpu_memory"}
UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "utilization.gpu": "%",
    "power.draw": "W",
    "power.limit": "W",
    "used_gpu_memory": "MiB",
}


@dataclass(frozen=True)
class Row:
    """What one line of an answer is made of; `process` is None for a line about a card."""

    state: State
    count: int
    card: Card
    process: Holder | None = None


class UnknownField(Exception):
    """The tool does not know the field."""


Field = Callable[[Row], object]
GPU_FIELDS: dict[str, Field] = {
    "index": lambda row: row.card.index,
    "name": lambda _: MODEL,
    "uuid": lambda row: row.card.gpu.uuid,
    "pci.bus_id": lambda row: row.card.gpu.bus_id,
    "driver_version": lambda row: row.state.driver_version,
    "count": lambda row: row.count,
    "memory.total": lambda _: MEMORY_MIB,
    "memory.used": lambda row: row.card.used_mib,
    "memory.free": lambda row: row.card.free_mib,
    "utilization.gpu": lambda _: 0,
    "temperature.gpu": lambda _: 31,
    "power.draw": lambda _: "32.00",
    "power.limit": lambda _: f"{POWER_LIMIT_W:.2f}",
    "compute_cap": lambda _: COMPUTE_CAPABILITY,
    "mig.mode.current": lambda _: "Disabled",
    "persistence_mode": lambda _: "Enabled",
    "compute_mode": lambda _: "Default",
    "pcie.link.gen.current": lambda _: 5,
    "pcie.link.width.current": lambda _: 16,
    "ecc.errors.uncorrected.volatile.total": lambda _: 0,
}
PROCESS_FIELDS: dict[str, Field] = {
    "pid": lambda row: row.process and row.process.pid,
    "process_name": lambda row: row.process and row.process.process_name,
    "used_gpu_memory": lambda row: row.process and row.process.mib,
    "gpu_name": GPU_FIELDS["name"],
    "gpu_uuid": GPU_FIELDS["uuid"],
    "gpu_bus_id": GPU_FIELDS["pci.bus_id"],
}


def gpus(fields: str, form: Sequence[str], state: State, count: int, cards: Sequence[Card]) -> list[str]:
    """Answer --query-gpu for the chosen `cards` of `count` present. Raises UnknownField."""
    rows = [Row(state, count, card) for card in cards]
    return _table(_names(fields, GPU_FIELDS, ALIASES), GPU_FIELDS, rows, form)


def processes(fields: str, form: Sequence[str], state: State, cards: Sequence[Card]) -> list[str]:
    """Answer --query-compute-apps: a line for each process on each card. Raises UnknownField."""
    rows = [Row(state, len(cards), card, process) for card in cards for process in card.processes]
    return _table(_names(fields, PROCESS_FIELDS, PROCESS_ALIASES), PROCESS_FIELDS, rows, form)


def _names(fields: str, known: dict[str, Field], aliases: dict[str, str]) -> list[str]:
    names = [aliases.get(name.strip(), name.strip()) for name in fields.split(",")]
    for name in names:
        if name not in known:
            raise UnknownField(name)
    return names


def _table(names: Sequence[str], known: dict[str, Field], rows: Sequence[Row], form: Sequence[str]) -> list[str]:
    # The header keeps its units under `nounits`: that is where a reader then finds them.
    header = [f"{name} [{UNITS[name]}]" if name in UNITS else name for name in names]
    units = {} if "nounits" in form else UNITS
    lines = [[f"{known[name](row)} {units.get(name, '')}".rstrip() for name in names] for row in rows]
    return [", ".join(line) for line in ([] if "noheader" in form else [header]) + lines]
