"""The units of a plan: one server; replicas behind a router; prefill and decode apart behind a router.

The entry port is the same in each, so that clients never notice a switch: the server listens there, or the router does
and the workers keep to loopback.
"""

from collections.abc import Sequence

from serving import gpu_groups, router, worker
from serving.engine import EngineOnHost, on_host
from serving.gpu_groups import Group
from serving.schemas import HostState
from serving.unit import Unit
from serving.wanted import Wanted, number
from serving.worker import Place

LOOPBACK = "127.0.0.1"
REPLICAS_FROM, PREFILL, DECODE = 30001, 30100, 30200
# Ranks of a worker meet here. Left alone, each worker draws one of the ports 22000 to 29999 before it binds it
# (sglang 0.5.23, get_free_port_below_ephemeral), and two that start at once may draw the same, or the router's.
NCCL_FROM = 28000
# Replicas that start while others serve are numbered from here on, be those ever so many.
BESIDE = 50
# SGLang's own default. Decode asks prefill there for what it needs to fetch the KV cache.
BOOTSTRAP = 8998


def units(wanted: Wanted, engine: EngineOnHost, state: HostState, beside: bool = False) -> tuple[Unit, ...]:
    """All units in the order of their start. A worker may have fewer GPUs than it needs: refusals.py says so.

    `beside`: replicas on the next cards, with names and ports of their own, so that they can start while others serve.
    """
    places = _replicas(wanted, BESIDE) if beside else PLACES[wanted.profile.topology](wanted)
    found = gpu_groups.groups(state.gpus, wanted.site.gpu_groups)
    before = len(places) if beside else 0
    given = gpu_groups.for_workers(found, wanted.profile.gpus, before + len(places))[before:]
    workers = tuple(
        worker.unit(wanted, engine, place, gpus, _devices(wanted, gpus, given))
        for place, gpus in zip(places, given, strict=True)
    )
    if wanted.router_engine is None:
        return workers
    return (*workers, router.unit(wanted, on_host(wanted.router_engine, state.pythons), workers))


def _devices(wanted: Wanted, own: Group, given: Sequence[Group]) -> Group:
    """The cards that a worker may open, in PCI order: where KV cache goes over CUDA IPC, those of its peer as well."""
    seen = [card for group in given for card in group] if wanted.profile.topology == "pd" else own
    return tuple(sorted(seen, key=lambda card: card.pci))


def _single(wanted: Wanted) -> list[Place]:
    return [Place("sglang-server", "server", wanted.site.listen, wanted.site.port)]


def _replicas(wanted: Wanted, first: int = 0) -> list[Place]:
    return [_replica(first + number) for number in range(wanted.profile.workers)]


def _replica(number: int) -> Place:
    nccl = NCCL_FROM + 1 + number
    return Place(
        name=f"sglang-replica-{number + 1}",
        role="replica",
        address=LOOPBACK,
        port=REPLICAS_FROM + number,
        arguments={"nccl_port": nccl},
        ports={"nccl_port": nccl},
    )


def _pd(wanted: Wanted) -> list[Place]:
    bootstrap = number(wanted.arguments_of("prefill"), "disaggregation_bootstrap_port", BOOTSTRAP)
    nccl = {"prefill": NCCL_FROM + 100, "decode": NCCL_FROM + 200}
    met = {"disaggregation_bootstrap_port": bootstrap}
    # Each rank listens for its peers on an address that it finds by itself, the network's (sglang 0.5.23,
    # get_local_ip_auto), and anybody may send there.
    environment = {"SGLANG_HOST_IP": LOOPBACK}
    prefill = Place(
        name="sglang-prefill",
        role="prefill",
        address=LOOPBACK,
        port=PREFILL,
        environment=environment,
        arguments={"disaggregation_mode": "prefill", "nccl_port": nccl["prefill"], **met},
        ports={"nccl_port": nccl["prefill"], **met},
    )
    decode = Place(
        name="sglang-decode",
        role="decode",
        address=LOOPBACK,
        port=DECODE,
        environment=environment,
        arguments={"disaggregation_mode": "decode", "nccl_port": nccl["decode"]},
        ports={"nccl_port": nccl["decode"]},
        after=("sglang-prefill.service",),
        part_of=("sglang-prefill.service",),
    )
    return [prefill, decode]


PLACES = {"single": _single, "replicas": _replicas, "pd": _pd}
