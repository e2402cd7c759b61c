"""A unit of a plan: one systemd service, a worker or the router."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.contract import Value
from serving.engine import EngineOnHost
from serving.schemas import Gpu


@dataclass(frozen=True)
class Worker:
    """A worker as the router knows it. `role` is regular, prefill or decode."""

    name: str
    url: str
    role: str
    bootstrap_port: int | None = None


@dataclass(frozen=True)
class Unit:
    """One systemd service of the plan. `arguments` are what /server_info must report back.

    `gpus` are those it computes on, `devices` those it may open. `ports` are all that it listens on, by what they are
    for. `after` and `part_of` name units of the plan. `ready` is the path that says 200 when it can serve, and
    `worker_counts` what a router must count by then.
    """

    name: str
    role: str
    engine: EngineOnHost
    gpus: tuple[Gpu, ...]
    devices: tuple[Gpu, ...]
    numa_node: int | None
    address: str
    port: int
    argv: tuple[str, ...]
    arguments: Mapping[str, Value]
    environment: Mapping[str, str]
    stop_within_s: int
    ports: Mapping[str, int]
    entry: bool = False
    after: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()
    workers: tuple[Worker, ...] = ()
    ready: str = "/health"
    worker_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def service(self) -> str:
        return f"{self.name}.service"

    @property
    def is_router(self) -> bool:
        return self.role == "router"

    @property
    def base_url(self) -> str:
        """Where the host itself reaches the unit. hostkit/release.py says the same there."""
        return base_url(self.address, self.port)


def base_url(address: str, port: int) -> str:
    asked = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 (asked, not bound)
    return f"http://{f'[{asked}]' if ':' in asked else asked}:{port}"
