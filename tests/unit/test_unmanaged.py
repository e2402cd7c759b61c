"""Servers in the way of a plan: refused in one line each, or evicted in a run that was told to."""

from typing import Any

import pytest

from serving import refusals, unmanaged
from serving.problems import Refused
from serving.schemas import HostState
from serving.site import load_site
from tests.unit import worlds
from tests.unit.test_refusals import bare, lines_of_refusal

KIMI_COMMAND = "python -m sglang.launch_server --model-path kimi"
KIMI = worlds.owner(
    kind="unit",
    name="kimi.service",
    stop="systemctl stop kimi.service",
    start="systemctl start kimi.service",
    back="Restart=always, enabled at boot",
)


def use(pid: int = 4250) -> dict[str, Any]:
    return {"pci": "0000:01:00.0", "used_mib": 61440, "process": worlds.process(pid=pid)}


def host_with(*servers: dict[str, Any], **changes: Any) -> HostState:
    return bare(servers=list(servers), **{"gpu_uses": [use()], **changes})


def test_a_server_on_a_needed_gpu_is_one_line_with_all_an_operator_needs() -> None:
    [line] = lines_of_refusal(
        host_with(worlds.server(owner=KIMI, ports=[30000], command=f"/opt/venv/bin/{KIMI_COMMAND}"))
    )
    assert line == (
        "gpu1: GPU 0 and port 30000: 60.0 GiB, held by the sglang server pid 4242 (ana, 2 h), "
        "kimi.service (Restart=always, enabled at boot brings it back): "
        f"{KIMI_COMMAND}; "
        "stop it (systemctl stop kimi.service), or have it stopped in this run: --data evict=true"
    )


@pytest.mark.parametrize(
    ("owner", "remedy"),
    [
        (worlds.owner(), "stop it (kill 4242)"),
        (worlds.owner(kind="none", name=""), "stop it (kill 4242)"),
        (
            worlds.owner(kind="container", name="docker 3f9c", stop="docker stop 3f9c"),
            "stop it (docker stop 3f9c)",
        ),
    ],
)
def test_the_remedy_is_that_of_its_owner(owner: dict[str, Any], remedy: str) -> None:
    [line] = lines_of_refusal(host_with(worlds.server(owner=owner)))
    assert remedy in line


def test_a_server_on_the_port_alone_is_in_the_way() -> None:
    listener = {"address": "0.0.0.0", "port": 30000, "process": worlds.process()}  # noqa: S104
    [line] = lines_of_refusal(host_with(worlds.server(gpus={}, ports=[30000]), gpu_uses=[], listeners=[listener]))
    assert line.startswith("gpu1: port 30000: held by the sglang server pid 4242")


def test_ports_between_an_engine_s_own_processes_are_not_shown() -> None:
    """The real server on a CPU had eleven open (sglang 0.5.23); one of them is for callers."""
    held = worlds.server(ports=[26493, 31000, 33921], command="python -m sglang.launch_server --port 31000")
    state = host_with(held)
    [line] = lines_of_refusal(state)
    assert line.startswith("gpu1: GPU 0: 60.0 GiB")
    assert unmanaged.ports_of(state.servers[0]) == ["31000"]


def passes(state: HostState, **settings: Any) -> list[int]:
    """Pids of the servers that a run which is not refused will evict."""
    release = worlds.release(state, profile="sandbox", **settings)
    refusals.check(release.plan, release)
    return [server.pid for server in unmanaged.to_evict(release.plan)]


def test_a_server_that_is_not_in_the_way_is_no_problem_and_is_never_evicted() -> None:
    elsewhere = worlds.server(gpus={"0000:08:00.0": 61440}, ports=[31000])
    state = host_with(elsewhere, gpu_uses=[{**use(), "pci": "0000:08:00.0"}])
    assert passes(state) == []
    assert passes(state, evict=True) == []


def test_a_server_in_the_way_is_evicted_when_asked_for() -> None:
    assert passes(host_with(worlds.server(owner=KIMI)), evict=True) == [4242]


def test_a_holder_that_nobody_knows_is_refused_all_the_same() -> None:
    [line] = lines_of_refusal(host_with(worlds.server(), gpu_uses=[use(), use(pid=99)]), evict=True)
    assert "held by pid 99" in line
    assert "evict" not in line


def test_a_port_that_nobody_known_holds_is_refused_all_the_same() -> None:
    listener = {"address": "127.0.0.1", "port": 30000, "process": worlds.process(pid=99)}
    [line] = lines_of_refusal(host_with(worlds.server(), listeners=[listener]), evict=True)
    assert "is in use on 127.0.0.1 by pid 99" in line


def test_an_owner_that_cannot_be_stopped_for_it_keeps_its_server() -> None:
    shared = worlds.owner(kind="unit", name="supervisor.service", reason="supervisor.service also runs pid 9: nginx")
    [line] = lines_of_refusal(host_with(worlds.server(owner=shared)), evict=True)
    assert "it cannot be evicted, because supervisor.service also runs pid 9: nginx; stop it yourself" in line


def test_a_request_to_evict_names_what_stays_the_same_from_look_to_look() -> None:
    first, later = (host_with(worlds.server(age_s=age)).servers[0] for age in (1, 900))
    assert unmanaged.target(first) == unmanaged.target(later)


def test_evict_is_for_one_run_and_is_refused_in_a_file() -> None:
    files = {"profile": "sandbox", "models": "/m", "listen": "127.0.0.1", "port": 1, "restart": "allow"}
    with pytest.raises(Refused, match="evict: stands in a file, and is for one run only; take it out"):
        load_site({**files, "evict": True})
    assert load_site({**files, "evict": True}, from_command_line={"evict": True}).evict
    assert not load_site(files).evict


def test_evict_starts_no_other_release() -> None:
    assert worlds.release(evict=True).digest == worlds.release().digest
