"""One server, replicas behind a router, prefill and decode apart: what each unit of the plan is given."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving import combinations, refusals
from serving.contract import Value
from serving.plan import Plan, make_plan
from serving.problems import Refused
from serving.release import Release
from serving.schemas import HostState
from serving.unit import Unit
from tests.unit import worlds

TOPOLOGIES = ("tp4-mxfp4", "2x-tp4", "pd")


def unit_of(plan: Plan, name: str) -> Unit:
    return next(unit for unit in plan.units if unit.name == name)


def document(profile: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(worlds.release(profile=profile).document)
    return content


def lines(plan: Plan) -> list[str]:
    try:
        refusals.check(plan, Release(plan))
    except Refused as refusal:
        return [str(problem) for problem in refusal.problems]
    return []


@pytest.mark.parametrize("profile", TOPOLOGIES)
def test_the_entry_port_is_the_same_in_every_topology(profile: str) -> None:
    plan = worlds.plan(profile=profile, port=31000)
    assert [unit.name for unit in plan.units if unit.entry] == [plan.entry.name]
    assert (plan.entry.address, plan.entry.port) == ("127.0.0.1", 31000)
    assert all(unit.address == "127.0.0.1" for unit in plan.units)


def test_each_unit_has_its_name_and_ports() -> None:
    def ports(profile: str) -> dict[str, dict[str, int]]:
        return {unit.name: dict(unit.ports) for unit in worlds.plan(profile=profile).units}

    assert ports("tp4-mxfp4") == {"sglang-server": {"port": 30000}}
    assert ports("2x-tp4") == {
        "sglang-replica-1": {"port": 30001, "nccl_port": 28001},
        "sglang-replica-2": {"port": 30002, "nccl_port": 28002},
        "sglang-router": {"port": 30000, "prometheus_port": 29000},
    }
    assert ports("pd") == {
        "sglang-prefill": {"port": 30100, "nccl_port": 28100, "disaggregation_bootstrap_port": 8998},
        "sglang-decode": {"port": 30200, "nccl_port": 28200},
        "sglang-router": {"port": 30000, "prometheus_port": 29000},
    }


def test_replicas_have_a_group_each_which_counts_from_0_in_its_unit() -> None:
    """CUDA numbers the cards that a unit may open, and DeviceAllow= lists those of its own group alone."""
    first, second = worlds.plan(profile="2x-tp4").workers
    assert [[gpu.index for gpu in unit.gpus] for unit in (first, second)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [unit.environment["CUDA_VISIBLE_DEVICES"] for unit in (first, second)] == ["0,1,2,3", "0,1,2,3"]
    assert second.devices == second.gpus


def test_prefill_and_decode_see_all_cards_their_own_first() -> None:
    """CUDA IPC needs the peer's cards to be visible; the numbers are those of the whole host."""
    prefill, decode = worlds.plan(profile="pd").workers
    assert prefill.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert decode.environment["CUDA_VISIBLE_DEVICES"] == "4,5,6,7,0,1,2,3"
    assert len(prefill.devices) == len(decode.devices) == 8
    assert [gpu.index for gpu in decode.gpus] == [4, 5, 6, 7]


def test_groups_named_by_the_operator_decide_also_where_they_interleave() -> None:
    cards = worlds.host_state().gpus
    groups = [[cards[index].pci for index in group] for group in ([1, 3, 5, 7], [0, 2, 4, 6])]
    replicas, apart = (worlds.plan(profile=profile, gpu_groups=groups) for profile in ("2x-tp4", "pd"))
    assert [gpu.index for gpu in replicas.units[0].gpus] == [1, 3, 5, 7]
    assert [unit.environment["CUDA_VISIBLE_DEVICES"] for unit in apart.workers] == [
        "1,3,5,7,0,2,4,6",
        "0,2,4,6,1,3,5,7",
    ]
    assert all(unit.numa_node is None for unit in apart.units), "these groups span both sockets"


@pytest.mark.parametrize(("profile", "nodes"), [("2x-tp4", [0, 1]), ("pd", [0, 1]), ("tp8", [None])])
def test_workers_keep_to_the_socket_of_their_cards(profile: str, nodes: list[int | None]) -> None:
    release = worlds.release(profile=profile)
    texts = {file.path: file.text for file in release.files}
    for unit, node in zip(release.plan.workers, nodes, strict=True):
        text = texts[f"/etc/systemd/system/{unit.service}"]
        assert (f"NUMAMask={node}\n" in text) == (node is not None)
        assert ("NUMAPolicy=" in text) == (node is not None)


def test_the_router_gets_its_workers_and_prefills_bootstrap_port() -> None:
    replicas, apart = worlds.plan(profile="2x-tp4").entry.argv, worlds.plan(profile="pd").entry.argv
    at = replicas.index("--worker-urls")
    assert replicas[at + 1 : at + 3] == ("http://127.0.0.1:30001", "http://127.0.0.1:30002")
    at = apart.index("--prefill")
    assert apart[at + 1 : at + 3] == ("http://127.0.0.1:30100", "8998")
    assert apart[apart.index("--decode") + 1] == "http://127.0.0.1:30200"
    for argv in (replicas, apart):
        assert argv[argv.index("--prometheus-host") + 1] == "127.0.0.1"
        assert argv[argv.index("--host") + 1] == "127.0.0.1"


def test_the_router_has_an_engine_and_an_environment_of_its_own() -> None:
    plan = worlds.plan(profile="2x-tp4")
    assert [engine.name for engine in plan.engines] == ["sglang-0.5.23", "router-0.3.2"]
    router = unit_of(plan, "sglang-router")
    assert router.argv[0].startswith(router.engine.folder)
    assert not {"CUDA_VISIBLE_DEVICES", "NCCL_PROTO", "CUDA_HOME"} & router.environment.keys()


def test_prefill_and_decode_get_what_is_theirs_and_share_the_rest() -> None:
    prefill, decode = worlds.plan(profile="pd").workers
    assert "cuda_graph_max_bs_decode" not in prefill.arguments
    assert decode.arguments["cuda_graph_max_bs_decode"] == 64
    assert prefill.arguments["tp_size"] == decode.arguments["tp_size"] == 4
    assert (prefill.arguments["disaggregation_mode"], decode.arguments["disaggregation_mode"]) == ("prefill", "decode")
    assert prefill.environment["SGLANG_HOST_IP"] == decode.environment["SGLANG_HOST_IP"] == "127.0.0.1"


def test_the_document_says_who_starts_after_whom_and_what_to_wait_for() -> None:
    prefill, decode, router = document("pd")["units"]
    assert [unit["after"] for unit in (prefill, decode, router)] == [
        [],
        ["sglang-prefill"],
        ["sglang-prefill", "sglang-decode"],
    ]
    assert router["checks"] == {"ready": "/readiness", "workers": {"prefill": 1, "decode": 1}}
    assert [(one["role"], one["bootstrap_port"]) for one in router["workers"]] == [("prefill", 8998), ("decode", None)]
    assert decode["checks"] == {"ready": "/health", "workers": {}}
    assert [unit["entry"] for unit in (prefill, decode, router)] == [False, False, True]
    assert (router["engine"]["package"], decode["engine"]["package"]) == ("sglang-router", "sglang")
    assert document("2x-tp4")["units"][-1]["checks"]["workers"] == {"regular": 2}


def test_the_documents_environment_is_what_the_process_has() -> None:
    units = {unit["name"]: unit for unit in document("2x-tp4")["units"]}
    assert units["sglang-replica-2"]["environment"]["NCCL_PROTO"] == "LL"
    assert "NCCL_PROTO" not in units["sglang-router"]["environment"]


def test_decode_goes_and_comes_back_with_prefill() -> None:
    texts = {file.path: file.text for file in worlds.release(profile="pd").files}
    assert "\nPartOf=sglang.target sglang-prefill.service\n" in texts["/etc/systemd/system/sglang-decode.service"]
    assert "\nPartOf=sglang.target\n" in texts["/etc/systemd/system/sglang-prefill.service"]
    assert not any("\nBindsTo=" in text for text in texts.values())


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef")
    file.chmod(0o600)
    return str(file)


def test_the_credential_lies_where_systemd_shows_it_to_that_unit(key: str) -> None:
    for unit in worlds.plan(profile="pd", api_key_file=key).workers:
        at = unit.argv.index("--config")
        assert unit.argv[at + 1] == f"/run/credentials/{unit.name}.service/engine.yaml"


def test_a_key_with_a_router_is_refused_since_its_command_line_would_show_it(key: str) -> None:
    found = lines(worlds.plan(profile="2x-tp4", api_key_file=key))
    expected = (
        "api_key_file: cannot be given to the router of topology replicas but on its command line; set it to None"
    )
    assert any(expected in line for line in found), found
    assert not any("api_key_file" in line for line in lines(worlds.plan(api_key_file=key)))


def test_idle_cards_are_mentioned() -> None:
    assert "GPU 4,5,6,7 stay idle" in worlds.plan().notes[-1]
    assert worlds.plan(profile="2x-tp4").notes == worlds.plan(profile="sandbox").notes == ()


SEVEN = [worlds.gpu(index) for index in range(7)]
PLANS: dict[str, tuple[HostState, dict[str, Any], str]] = {
    "a group larger than the host": (
        worlds.host_state(gpus=SEVEN),
        {"profile": "2x-tp4"},
        "GPUs: 7 found, in groups of 4 and 3, the profile needs 2 groups of 4; see `nvidia-smi -L`",
    ),
    "a card named that is gone": (
        worlds.host_state(gpus=SEVEN),
        {"gpu_groups": [["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:08:00.0"]]},
        "group_data: gpu_groups: gpu1 has no GPU 0000:08:00.0, or has it no more; take one of 0000:01:00.0,",
    ),
    "the entry port is that of a replica": (
        worlds.host_state(),
        {"profile": "2x-tp4", "port": 30002},
        "port 30002: is wanted by sglang-replica-2 and by sglang-router; set another `port`",
    ),
    "the entry port is the bootstrap port": (
        worlds.host_state(),
        {"profile": "pd", "port": 8998},
        "port 8998: is wanted by sglang-prefill (disaggregation_bootstrap_port) and by sglang-router",
    ),
    "somebody on the router's port for figures": (
        worlds.host_state(listeners=[{"address": "0.0.0.0", "port": 29000, "process": worlds.process()}]),  # noqa: S104
        {"profile": "pd"},
        "port 29000: is in use on 0.0.0.0 by pid 4242",
    ),
    "no Python for the router": (
        worlds.host_state(pythons={"3.13": "/usr/bin/python3.13"}),
        {"profile": "2x-tp4"},
        "python: the engine router-0.3.2 needs Python 3.12 or 3.11, found 3.13",
    ),
    "a public router": (
        worlds.host_state(),
        {"profile": "pd", "listen": "0.0.0.0"},  # noqa: S104
        'would be open to the network without an API key; use "127.0.0.1" and `ssh -L`',
    ),
    "a checkpoint of which no revision is known": (
        worlds.host_state(),
        {"profile": "tp4-nvfp4"},
        "revision: none is known for nvidia/DeepSeek-V4-Flash-NVFP4; make manifest REPO=nvidia",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_is_refused_on_this_host(name: str) -> None:
    state, settings, expected = PLANS[name]
    found = lines(worlds.plan(state, **settings))
    assert any(expected in line for line in found), found


def with_arguments(profile: str, role: str = "", **arguments: Value | None) -> list[str]:
    """Problems of the profile with some arguments of all workers, or of one role, changed."""
    wanted = worlds.plan(profile=profile).wanted
    if role:
        wanted = replace(wanted, overrides={**wanted.overrides, role: {**wanted.overrides[role], **arguments}})
    else:
        wanted = replace(wanted, arguments={**wanted.arguments, **arguments})  # type: ignore[dict-item]
    return [str(problem) for problem in combinations.problems(wanted)]


@pytest.mark.parametrize(
    ("role", "arguments", "expected"),
    [
        ("decode", {"tp_size": 2}, "decode.arguments.tp_size: is 2, that of prefill is 4; make them equal"),
        ("decode", {"tp_size": 2}, "gpus: is 4, tp_size x pp_size of decode is 2"),
        ("prefill", {"kv_cache_dtype": "bf16"}, "decode.arguments.kv_cache_dtype: is unset, that of prefill is bf16"),
        ("decode", {"page_size": 64}, "decode.arguments.page_size: is 64, that of prefill is unset"),
        ("", {"speculative_algorithm": "DSPARK"}, "arguments.speculative_algorithm: DSPARK does not work with prefill"),
        ("", {"disaggregation_transfer_backend": None}, "disaggregation_transfer_backend: is mooncake, which does not"),
        ("", {"disaggregation_transfer_backend": "fake"}, "is fake, which does not move KV cache"),
        ("decode", {"mem_fraction_static": 0.99}, "decode.arguments.mem_fraction_static: 0.99 is outside 0.1 to 0.95"),
    ],
)
def test_prefill_and_decode_that_cannot_work_together_are_refused(
    role: str, arguments: dict[str, Value | None], expected: str
) -> None:
    found = with_arguments("pd", role, **arguments)
    assert any(expected in line for line in found), found


def test_no_profile_is_a_combination_that_fails() -> None:
    for profile in ("2x-tp4", "pd", "tp8", "tp4-nvfp4", "tp4-eagle", "tp4-dspark", "tp4-mxfp4-marlin", "v41-tp8"):
        assert with_arguments(profile) == [], profile


def test_a_worker_that_extends_a_bigger_profile_than_the_host_still_has_a_plan() -> None:
    plan = make_plan(worlds.plan(profile="pd").wanted, worlds.host_state(gpus=[]))
    assert [unit.gpus for unit in plan.units] == [(), (), ()]
    assert Release(plan).digest
