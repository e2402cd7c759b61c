"""A plan: profile, site settings and what the host looks like, joined and checked. All else is computed from it."""

from collections.abc import Iterator
from dataclasses import dataclass

from serving import topology
from serving.engine import EngineOnHost, on_host
from serving.paths import CACHES, HOSTKIT
from serving.schemas import HostState
from serving.unit import Unit
from serving.wanted import GROUP_DATA, Wanted, load_wanted

__all__ = ["GROUP_DATA", "Plan", "Unit", "Wanted", "hostkit_path", "load_wanted", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """What is wanted, on a host. `units` in the order of their start: workers, then the router where there is one."""

    wanted: Wanted
    state: HostState
    engine: EngineOnHost
    units: tuple[Unit, ...]

    @property
    def entry(self) -> Unit:
        """The unit that answers clients."""
        return self.units[-1]

    @property
    def workers(self) -> tuple[Unit, ...]:
        return tuple(unit for unit in self.units if not unit.is_router)

    @property
    def engines(self) -> tuple[EngineOnHost, ...]:
        """Every engine that a unit needs, the main one first."""
        return tuple(dict.fromkeys((self.engine, *(unit.engine for unit in self.units))))

    @property
    def python(self) -> str:
        return self.engine.python

    @property
    def engine_digest(self) -> str:
        return self.engine.digest

    @property
    def engine_folder(self) -> str:
        return self.engine.folder

    @property
    def checkpoint_folder(self) -> str:
        return self.wanted.checkpoint.folder(self.wanted.site.models)

    @property
    def cache_folder(self) -> str:
        return f"{CACHES}/{self.engine_digest}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What an operator should know: how arguments were read, and cards that nothing computes on."""
        return (*self.wanted.notes, *self._idle())

    def _idle(self) -> Iterator[str]:
        used = {gpu.pci for unit in self.units for gpu in unit.gpus}
        idle = [str(gpu.index) for gpu in self.state.gpus if gpu.pci not in used]
        if self.wanted.engine.data.cuda and len(idle) >= self.wanted.profile.gpus:
            yield f"GPU {','.join(idle)} stay idle: a profile with `topology: replicas` uses them as well"


def make_plan(wanted: Wanted, state: HostState, beside: bool = False) -> Plan:
    """The plan for this host. What the host lacks is left for refusals.py to say, all of it at once.

    `beside` puts replicas where they can start while others serve (serving/beside.py).
    """
    engine = on_host(wanted.engine, state.pythons)
    return Plan(wanted, state, engine, topology.units(wanted, engine, state, beside))


def hostkit_path(digest: str) -> str:
    return f"{HOSTKIT}/{digest}/hostkit.pyz"
