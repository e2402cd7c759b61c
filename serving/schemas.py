"""The JSON that passes between controller and host, defined once. Sizes in the unit their name ends in."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Read from a host that may run a newer hostkit: unknown keys are let pass, known ones are checked."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


def age(seconds: int) -> str:
    return f"{seconds // 3600} h" if seconds >= 7200 else f"{seconds // 60} min"


class Process(Shape):
    """A process as an operator needs to see it. `unit` is the systemd unit of its cgroup."""

    pid: int
    user: str
    age_s: int
    command: str
    unit: str | None

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.user}, {age(self.age_s)}, {self.unit or 'no unit'}): {self.command[:120]}"


class GpuUse(Shape):
    """GPU memory that a process holds."""

    pci: str
    used_mib: int
    process: Process


class Gpu(Shape):
    """One card. `pci` as domain:bus:device.function in lower case; `index` counts in PCI order.

    `numa_node` is the socket that it hangs on, None where the kernel does not know.
    """

    pci: str
    index: int
    uuid: str
    name: str
    memory_total_mib: int
    memory_used_mib: int
    compute_capability: str
    minor: int | None
    numa_node: int | None = None


class Listener(Shape):
    """A listening TCP socket; `process` is None where its owner could not be seen."""

    address: str
    port: int
    process: Process | None


class File(Shape):
    """What stands at a path: type is file, directory, link or other."""

    type: str
    mode: str
    owner: str
    group: str
    sha256: str | None = None
    target: str | None = None


class Started(Shape):
    """What the running process of a unit was started from, written as it started."""

    invocation_id: str
    release: str | None
    engine_intact: bool | None
    files: dict[str, str]


class UnitState(Shape):
    """What systemd says of one unit, and what its process was started from."""

    load: str
    active: str
    sub: str
    enabled: str
    main_pid: int
    invocation_id: str
    restarts: int
    needs_reload: bool
    drop_ins: list[str]
    started: Started | None


class Owner(Shape):
    """What a server belongs to. `stop` is its command, empty for a session; `back` says what starts it again.

    `reason` says why the owner is not stopped for the server's sake, and so it cannot be evicted.
    """

    kind: Literal["unit", "container", "session", "none"]
    name: str
    stop: str
    start: str
    back: str
    reason: str


class Server(Shape):
    """An inference server that the playbook did not start: a process tree with [pid, start ticks] of each.

    `gpus` is the memory held, MiB by PCI address.
    """

    pid: int
    start_ticks: int
    pids: list[list[int]]
    user: str
    age_s: int
    command: str
    kind: str
    gpus: dict[str, int]
    ports: list[int]
    owner: Owner

    @property
    def gib(self) -> float:
        """GPU memory that it holds on all cards (GiB)."""
        return sum(self.gpus.values()) / 1024


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 180 else f"{seconds:.0f} s"


class Event(Shape):
    """One line of progress. percent 0 to 100 and eta_s only where they are known."""

    t: float
    unit: str
    stage: str
    percent: float | None
    elapsed_s: float
    eta_s: float | None
    message: str

    def __str__(self) -> str:
        percent = "" if self.percent is None else f"{self.percent:.0f} %, "
        return f"{percent}{self.message}{self.left}"

    @property
    def left(self) -> str:
        return "" if self.eta_s is None else f", about {_span(self.eta_s)} left"


class HostState(Shape):
    """The one look at a host: everything that a run decides on."""

    schema_: int
    hostname: str
    os: str
    init: str
    arch: str
    glibc: str
    pythons: dict[str, str]
    driver: str | None
    driver_error: str | None
    gpus: list[Gpu]
    gpu_uses: list[GpuUse]
    servers: list[Server]
    free_gb: dict[str, float]
    files: dict[str, File]
    packages: dict[str, str]
    users: dict[str, int]
    units: dict[str, UnitState]
    listeners: list[Listener]
    active: str | None
    last_good: str | None
    engines: dict[str, dict[str, Any]]
    checkpoints: dict[str, dict[str, Any]]
    jobs: list[str]
    progress: dict[str, Event] = Field(default_factory=dict)
    intent: dict[str, Any] | None
    hold: dict[str, Any] | None
    records: dict[str, dict[str, Any]]
    bundle: dict[str, Any] | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "HostState":
        """Raises ValueError when the document is of another schema or does not hold what it should."""
        if data.get("schema") != 1:
            raise ValueError(f"schema {data.get('schema')!r}, expected 1")
        return cls.model_validate({**data, "schema_": data["schema"]})


class Verdict(Shape):
    """The outcome of one step of the ladder."""

    step: str
    ok: bool
    evidence: str
    limit_s: float


class Result(Shape):
    """How a job on the host ended: exit code of hostkit, the verdicts, and what an operator should read."""

    code: Literal[0, 1, 2, 3, 4, 5, 6]
    message: str
    verdicts: list[Verdict]
    excerpt: list[str]
