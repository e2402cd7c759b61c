"""The state of a host in a table: units, what they were started from, GPUs and who holds them."""

import time
from collections.abc import Iterator

from pyinfra import host
from rich.console import Console
from rich.table import Table

from serving.paths import RELEASES
from serving.problems import Refused
from serving.schemas import HostState
from tasks import look, servers
from tasks.plan import refuse, settings


def show() -> None:
    """Print one table for the host, from one look."""
    try:
        state = look.inspect(settings())
    except Refused as refusal:
        refuse(refusal)
        return
    table = Table(title=f"{host.name}: {state.os}, driver {state.driver or state.driver_error}", title_justify="left")
    table.add_column("what")
    table.add_column("state", overflow="fold")
    for what, text in (*_releases(state), *_jobs(state), *_units(state), *_gpus(state)):
        table.add_row(what, text)
    Console(stderr=True).print(table)
    servers.show("servers that this playbook did not start", state.servers, state)


def _releases(state: HostState) -> Iterator[tuple[str, str]]:
    kept = sum(path.startswith(f"{RELEASES}/") and path.endswith("/release.json") for path in state.files)
    yield "release", f"active {state.active or 'none'}, last good {state.last_good or 'none'}, {kept} kept"
    for profile, record in state.records.items():
        when = time.strftime("%F %T", time.localtime(record["at"]))
        yield f"profile {profile}", f"last start took {record['start_s']} s ({when}, release {record['release']})"


def _jobs(state: HostState) -> Iterator[tuple[str, str]]:
    for kind in state.jobs:
        yield f"job {kind}", str(state.progress.get(kind, "under way"))


def _units(state: HostState) -> Iterator[tuple[str, str]]:
    for name, unit in state.units.items():
        origin = unit.started.release if unit.started and unit.started.invocation_id == unit.invocation_id else None
        yield name, f"{unit.active}/{unit.sub}, pid {unit.main_pid}, started from {origin or 'an unknown release'}"
    if not state.units:
        yield "units", "none"


def _gpus(state: HostState) -> Iterator[tuple[str, str]]:
    for gpu in state.gpus:
        holders = [str(use.process) for use in state.gpu_uses if use.pci == gpu.pci]
        used = f"{gpu.memory_used_mib}/{gpu.memory_total_mib} MiB"
        yield f"GPU {gpu.index} {gpu.pci}", f"{used}  {'; '.join(holders)}"
