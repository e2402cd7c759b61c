"""Where the replicas of a release go: to one of two places, by what the host looks like."""

from typing import Any

from serving import beside
from serving.plan import load_wanted
from serving.release import Release
from serving.schemas import HostState
from tests.unit import worlds

FIRST, SECOND = ("sglang-replica-1", "sglang-replica-2"), ("sglang-replica-51", "sglang-replica-52")


def served(cards: tuple[int, ...], names: tuple[str, ...], **changes: Any) -> HostState:
    """A host where these units serve from an earlier release, on these cards, behind a router."""
    units = {f"{name}.service": worlds.unit_state() for name in (*names, "sglang-router")}
    pcis = [worlds.gpu(index)["pci"] for index in cards]
    uses = [
        {"pci": pci, "used_mib": 61440, "process": worlds.process(unit=f"{name}.service")}
        for pci, name in zip(pcis, names, strict=True)
    ]
    gpus = [worlds.gpu(index, numa_node=None) for index in range(8)]
    return worlds.host_state(**{"gpus": gpus, "units": units, "gpu_uses": uses, "active": "earlier", **changes})


def planned(state: HostState, profile: str = "sandbox-replicas") -> Release:
    return beside.release(load_wanted(worlds.site(profile=profile)), state)


def names(release: Release) -> tuple[str, ...]:
    return tuple(unit.name for unit in release.plan.workers)


def test_a_bare_host_gets_them_at_the_first_place() -> None:
    assert names(planned(worlds.host_of("sandbox"))) == FIRST


def test_beside_those_that_serve_they_get_other_cards_names_and_ports() -> None:
    release = planned(served((0, 4), FIRST))
    assert names(release) == SECOND
    assert [[gpu.index for gpu in unit.gpus] for unit in release.plan.workers] == [[1], [5]]
    assert [dict(unit.ports) for unit in release.plan.workers] == [
        {"port": 30051, "nccl_port": 28051},
        {"port": 30052, "nccl_port": 28052},
    ]
    assert beside.moves(release)


def test_from_the_second_place_the_next_one_goes_to_the_first() -> None:
    release = planned(served((1, 5), SECOND))
    assert (names(release), beside.moves(release)) == (FIRST, True)


def test_a_release_stays_where_it_is_active() -> None:
    second = planned(served((0, 4), FIRST))
    state = served((1, 5), SECOND, active=second.digest)
    assert planned(state).digest == second.digest
    assert not beside.moves(planned(state))
    stopped = served((), (), active=second.digest, gpu_uses=[], units={})
    assert planned(stopped).digest == second.digest


def test_without_room_or_without_a_router_they_take_the_place_of_what_serves() -> None:
    eight = tuple(f"sglang-replica-{number}" for number in range(1, 9))
    assert names(planned(served(tuple(range(8)), eight))) == FIRST
    server = {"sglang-server.service": worlds.unit_state()}
    assert names(planned(served((0, 4), FIRST, units=server))) == FIRST
    apart = served((0, 4), ("sglang-prefill", "sglang-decode"))
    assert (names(planned(apart)), beside.moves(planned(apart))) == (FIRST, False)
    assert not beside.moves(planned(served(tuple(range(8)), eight)))


def test_two_servers_of_four_cards_each_leave_no_room() -> None:
    state = worlds.host_state(active="earlier")
    assert names(planned(state, "2x-tp4")) == FIRST


def test_prefill_and_decode_have_one_place() -> None:
    state = served((0, 4), ("sglang-prefill", "sglang-decode"))
    assert names(planned(state, "sandbox-pd")) == ("sglang-prefill", "sglang-decode")
