"""A worker of a plan: a SGLang server with its GPUs, its argv and its environment."""

from dataclasses import dataclass, field

from serving import gpu_groups
from serving.contract import Value
from serving.engine import EngineOnHost
from serving.gpu_groups import Group
from serving.paths import CACHES, CONFIG
from serving.unit import Unit
from serving.wanted import Wanted


@dataclass(frozen=True)
class Place:
    """Where a worker stands in its topology: what the plan says and not the profile. `ports` beside its own."""

    name: str
    role: str
    address: str
    port: int
    arguments: dict[str, Value] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()


def unit(wanted: Wanted, engine: EngineOnHost, place: Place, gpus: Group, devices: Group) -> Unit:
    """The worker at its place. It computes on `gpus`, and may open `devices`."""
    contract, profile = engine.engine.contract, wanted.profile
    own: dict[str, Value] = {
        "model_path": wanted.checkpoint.folder(wanted.site.models),
        "served_model_name": profile.served_model_name,
        "host": place.address,
        "port": place.port,
    }
    arguments = {**wanted.arguments_of(place.role), **place.arguments, **own}
    secret: dict[str, Value] = {"config": credential(place.name)} if wanted.api_key else {}
    return Unit(
        name=place.name,
        role=place.role,
        engine=engine,
        gpus=gpus,
        devices=devices,
        numa_node=gpu_groups.node_of(gpus),
        address=place.address,
        port=place.port,
        argv=(engine.interpreter, "-m", "sglang.launch_server", *contract.argv({**arguments, **secret})),
        arguments=contract.by_dest(arguments),
        environment={
            **_environment(wanted, engine, gpus, devices),
            **place.environment,
            **profile.environment_of(place.role),
        },
        stop_within_s=profile.stop_within_s,
        ports={"port": place.port, **place.ports},
        entry=place.role == "server",
        after=place.after,
        part_of=place.part_of,
    )


def credential(name: str) -> str:
    """Where systemd shows the unit its credential, for the service user alone (systemd.exec(5), LoadCredential=)."""
    return f"/run/credentials/{name}.service/engine.yaml"


def _environment(wanted: Wanted, engine: EngineOnHost, gpus: Group, devices: Group) -> dict[str, str]:
    """What every worker needs: its GPUs, a cache of its own, its tools on PATH, no hub at run time."""
    cache, cuda = f"{CACHES}/{engine.digest}", engine.cuda_home
    return {
        "PATH": f"{engine.folder}/bin:{f'{cuda}/bin:' if cuda else ''}/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
        **({"CUDA_HOME": cuda} if cuda else {}),
        "HOME": cache,
        "SGLANG_CACHE_DIR": cache,
        "XDG_CACHE_HOME": cache,
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible_devices(gpus, devices),
        **({"SGLANG_LOGGING_CONFIG_PATH": f"{CONFIG}/logging.json"} if wanted.api_key else {}),
    }


def visible_devices(gpus: Group, devices: Group) -> str:
    """The numbers by which CUDA knows the cards in the unit, the worker's own first.

    Numbers, since SGLang reads them as such (0.5.23, custom_all_reduce_utils.py). CUDA and NVML leave out a card whose
    node cannot be opened and count the rest from 0, in PCI order under CUDA_DEVICE_ORDER=PCI_BUS_ID: what Slurm's
    ConstrainDevices relies on. So the second group of a host is 0,1,2,3 in a unit whose DeviceAllow= lists it alone. A
    worker that opens its peer's cards too must see them, or CUDA IPC to them is not certain; with its own first, rank 0
    is on device 0 whatever the groups are, without base_gpu_id.
    """
    number = {card.pci: str(at) for at, card in enumerate(devices)}
    own = [card.pci for card in gpus]
    return ",".join(number[pci] for pci in [*own, *(pci for pci in number if pci not in own)])
