"""What makes a run impossible is said before the first change: one line each, with the remedy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from serving import refusals
from serving.problems import Refused
from serving.release import Release
from serving.schemas import HostState
from tests.playbook import TINY
from tests.unit import worlds


def whole_checkpoint() -> dict[str, Any]:
    files = worlds.plan(profile="sandbox").wanted.checkpoint.files or {}
    seen = {name: {"size": file.size, "mtime_ns": 1, "inode": 1} for name, file in files.items()}
    return {TINY: {"files": seen, "stamp": None}}


def bare(**changes: Any) -> HostState:
    return worlds.host_state(**{"checkpoints": whole_checkpoint(), **changes})


def lines_of_refusal(state: HostState, **settings: Any) -> list[str]:
    with pytest.raises(Refused) as refusal:
        release = worlds.release(state, **{"profile": "sandbox", **settings})
        refusals.check(release.plan, release)
    return [str(problem) for problem in refusal.value.problems]


def test_a_healthy_bare_host_is_not_refused() -> None:
    release = worlds.release(bare(), profile="sandbox")
    refusals.check(release.plan, release)


CASES: dict[str, tuple[Callable[[], HostState], dict[str, Any], str]] = {
    "a driver that does not answer": (
        lambda: bare(driver=None, driver_error="nvidia-smi not found", gpus=[]),
        {},
        "NVIDIA driver: does not answer (nvidia-smi not found)",
    ),
    "a driver too old for CUDA 13": (lambda: bare(driver="570.133.20"), {}, "CUDA 13 needs 580 or newer"),
    "no card at all": (lambda: bare(gpus=[]), {}, "0 found, the profile needs 1"),
    "a card of another architecture": (
        lambda: bare(gpus=[worlds.gpu(0, compute_capability="9.0", name="NVIDIA H200")]),
        {},
        "NVIDIA H200 is sm 9.0, the profile is for sm 12.0",
    ),
    "a card with too little memory": (
        lambda: bare(gpus=[worlds.gpu(0, memory_total_mib=32607)]),
        {},
        "has 32607 MiB, the profile needs 90 GiB",
    ),
    "a GPU held by a stranger": (
        lambda: bare(gpu_uses=[{"pci": "0000:01:00.0", "used_mib": 61000, "process": worlds.process()}]),
        {},
        "61000 MiB held by pid 4242 (ana, 2 h, session-3.scope): python -m sglang.launch_server; stop it (kill 4242)",
    ),
    "a GPU held by another service": (
        lambda: bare(gpu_uses=[{"pci": "0000:01:00.0", "used_mib": 9, "process": worlds.process(unit="vllm.service")}]),
        {},
        "stop it (systemctl stop vllm.service) and run again",
    ),
    "a port in use": (
        lambda: bare(listeners=[{"address": "127.0.0.1", "port": 30000, "process": worlds.process()}]),
        {},
        "port 30000: is in use on 127.0.0.1 by pid 4242",
    ),
    "a Python that the engine has no wheels for": (
        lambda: bare(pythons={"3.13": "/usr/bin/python3.13"}),
        {},
        "needs Python 3.11, found 3.13; apt-get install python3.11 python3.11-venv",
    ),
    "a host without systemd": (lambda: bare(init="runit"), {}, "init: is runit, not systemd"),
    "another processor": (lambda: bare(arch="aarch64"), {}, "architecture: is aarch64"),
    "a C library too old": (lambda: bare(glibc="2.31"), {}, "glibc: is 2.31, the engine needs 2.34"),
    "a card without a device node": (
        lambda: bare(gpus=[worlds.gpu(0, minor=None)]),
        {},
        "its device node is unknown",
    ),
    "a unit file of somebody else": (
        lambda: bare(files={"/etc/systemd/system/sglang-server.service": worlds.text_file()}),
        {},
        "/etc/systemd/system/sglang-server.service: is not from this playbook",
    ),
    "a GPU held by a unit that only sounds like ours": (
        lambda: bare(
            gpu_uses=[{"pci": "0000:01:00.0", "used_mib": 9, "process": worlds.process(unit="sglang-old.service")}]
        ),
        {},
        "stop it (systemctl stop sglang-old.service)",
    ),
    "a full disk": (
        lambda: bare(free_gb={"/opt/sglang": 1.0}),
        {},
        "disk of /opt/sglang: 1.0 GB free",
    ),
    "a public bind": (bare, {"listen": "0.0.0.0"}, "would be open to the network without an API key"),  # noqa: S104
    "a restart that is not allowed": (
        bare,
        {"restart": "never"},
        'restart = "never": this run would start or restart sglang-server.service',
    ),
    "a checkpoint that is not there": (
        lambda: bare(checkpoints={}),
        {"hub_mirrors": []},
        f"{TINY}/config.json: is missing",
    ),
    "a disk too small for what is missing": (
        lambda: bare(checkpoints={}, free_gb={"/opt/sglang": 500.0, "/srv/models": 0.0}),
        {},
        "disk of /srv/models: 0.0 GB free, 0.0 GB of the checkpoint are missing",
    ),
    "a source that is none": (
        bare,
        {"hub_mirrors": ["ftp://mirror"]},
        "hub_mirrors.0: 'ftp://mirror' is neither the URL of a hub nor a folder",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refuses(name: str) -> None:
    state, settings, expected = CASES[name]
    lines = lines_of_refusal(state(), **settings)
    assert any(expected in line for line in lines), lines
    assert all("\n" not in line and ";" in line for line in lines), "each is one line and ends in a remedy"


def test_a_truncated_checkpoint_file_is_named_with_both_sizes() -> None:
    checkpoints = whole_checkpoint()
    checkpoints[TINY]["files"]["model.safetensors"]["size"] = 7
    [line] = lines_of_refusal(bare(checkpoints=checkpoints), hub_mirrors=[])
    assert f"{TINY}/model.safetensors: has 7 bytes, the manifest says" in line


def test_what_is_missing_is_no_reason_when_there_is_a_source_for_it() -> None:
    release = worlds.release(bare(checkpoints={}), profile="sandbox")
    refusals.check(release.plan, release)


def test_our_own_server_on_the_port_and_the_gpu_is_no_stranger() -> None:
    ours = worlds.process(unit="sglang-server.service")
    state = bare(
        units={"sglang-server.service": worlds.unit_state()},
        gpu_uses=[{"pci": "0000:01:00.0", "used_mib": 61000, "process": ours}],
        listeners=[{"address": "127.0.0.1", "port": 30000, "process": ours}],
    )
    release = worlds.release(state, profile="sandbox")
    refusals.check(release.plan, release)


def test_all_problems_are_said_at_once() -> None:
    assert len(lines_of_refusal(bare(driver="570.1", arch="aarch64", checkpoints={}), hub_mirrors=[])) >= 3


def test_a_checkpoint_without_hashes_is_refused_with_the_command_that_makes_them() -> None:
    lines = lines_of_refusal(bare(), profile="tp4-mxfp4", hub_mirrors=[])
    assert any("make manifest NAME=deepseek-v4-flash" in line for line in lines), lines


def test_a_repository_without_a_known_revision_is_refused_with_the_command_that_finds_one() -> None:
    lines = lines_of_refusal(bare(), profile="tp4-nvfp4")
    assert any("make manifest REPO=nvidia/DeepSeek-V4-Flash-NVFP4 REV=main" in line for line in lines), lines


def with_arguments(checkpoint: dict[str, Any], **arguments: Any) -> list[str]:
    """Problems of tp4-mxfp4 with another checkpoint and some arguments changed."""
    plan = worlds.plan(bare(), profile="tp4-mxfp4")
    wanted = replace(
        plan.wanted,
        checkpoint=plan.wanted.checkpoint.model_copy(update={**checkpoint, "files": {}}),
        arguments={**plan.wanted.arguments, **arguments},
    )
    release = Release(replace(plan, wanted=wanted))
    try:
        refusals.check(release.plan, release)
    except Refused as refusal:
        return [str(problem) for problem in refusal.problems]
    return []


@pytest.mark.parametrize(
    ("checkpoint", "arguments", "expected"),
    [
        ({"experts": "nvfp4"}, {"moe_runner_backend": "auto"}, "auto picks a kernel for SM100"),
        ({"experts": "nvfp4"}, {"speculative_algorithm": "EAGLE"}, "does not work with an NVFP4 checkpoint"),
        ({}, {"speculative_algorithm": "DSPARK"}, "DSPARK needs a checkpoint with a dspark head"),
        ({"draft": "dspark"}, {"speculative_algorithm": "EAGLE"}, "EAGLE needs a checkpoint with a mtp head"),
        ({}, {"moe_runner_backend": "marlin", "ep_size": 4}, "crashes with moe_runner_backend marlin"),
        ({}, {"mem_fraction_static": 0.99}, "0.99 is outside 0.1 to 0.95"),
        ({}, {"tp_size": 8}, "is 4, tp_size x pp_size is 8"),
    ],
)
def test_a_combination_known_to_fail_is_refused(
    checkpoint: dict[str, Any], arguments: dict[str, Any], expected: str
) -> None:
    lines = with_arguments(checkpoint, **arguments)
    assert any(expected in line for line in lines), lines


def test_combinations_that_work_are_not_refused() -> None:
    assert with_arguments({}) == []
    assert with_arguments({}, speculative_algorithm="EAGLE", moe_runner_backend="marlin") == []
    assert with_arguments({"draft": "dspark"}, speculative_algorithm="DSPARK") == []


def test_settings_with_lists_can_be_shared_by_hosts() -> None:
    settings = {"hub_mirrors": ["http://127.0.0.1:1"], "adopt": ["/srv/old"], "gpu_groups": [["0000:01:00.0"]]}
    assert len({worlds.site(**settings), worlds.site(**settings), worlds.site()}) == 2
