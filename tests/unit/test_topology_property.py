"""A random profile is refused with a clear line, or its units have argv that the contracts take, and share nothing."""

import argparse
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving import refusals
from serving.contract import Contract, Flag
from serving.plan import GROUP_DATA, load_wanted, make_plan
from serving.problems import Refused
from serving.release import Release
from serving.unit import Unit
from tests.unit import worlds

LINE = re.compile(r"(group_data[\w./-]*|gpu1)(: [^;]+)?: .+; .+")


class Rejected(Exception):
    """The parser does not take the argv."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Rejected(message)


@cache
def parser_of(package: str) -> argparse.ArgumentParser:
    """argparse itself, with the options that the contract lists: another way to read them than serving/contract.py."""
    name = {"sglang": "sglang-0.5.23", "sglang-router": "sglang-router-0.3.2"}[package]
    parser = _Parser(allow_abbrev=False)
    for flag in Contract.load(GROUP_DATA / "engines" / "contracts" / f"{name}.json").flags:
        parser.add_argument(*flag.flags, dest=flag.dest, **_behaviour(flag))
    return parser


def _behaviour(flag: Flag) -> dict[str, Any]:
    if flag.action == "BooleanOptionalAction":
        return {"action": argparse.BooleanOptionalAction}
    if flag.is_switch:
        return {"action": "store_true"}
    kind = {"int": int, "float": float}.get(flag.type or "", str)
    action = "append" if flag.action == "_AppendAction" else "store"
    choices = flag.choices if kind is str else None
    return {"action": action, "nargs": flag.nargs, "type": kind, "choices": choices}


ARGUMENTS = st.fixed_dictionaries(
    {"tp_size": st.sampled_from([1, 2, 4, 8])},
    optional={
        "ep_size": st.sampled_from([1, 2]),
        "moe_runner_backend": st.sampled_from(["marlin", "flashinfer_mxfp4", "flashinfer_cutlass"]),
        "mem_fraction_static": st.floats(0.08, 0.97),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8_e4m3", "fp8_e5m2"]),
        "speculative_algorithm": st.sampled_from(["EAGLE", "DSPARK"]),
        "disaggregation_transfer_backend": st.sampled_from(["nixl", "fake", "mooncake_tcp"]),
        "disaggregation_bootstrap_port": st.sampled_from([8998, 30000, 30100, 28200]),
        "max_running_requests": st.integers(1, 512),
        "trust_remote_code": st.booleans(),
        "model_loader_extra_config": st.just({"enable_multithread_load": True, "num_threads": 8}),
    },
)
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "arguments": st.dictionaries(
            st.sampled_from(["page_size", "cuda_graph_max_bs_decode", "max_running_requests", "kv_cache_dtpe"]),
            st.sampled_from([None, 1, 64]),
            max_size=1,
        ),
        "environment": st.dictionaries(
            st.sampled_from(["SGLANG_DSV4_KV_LAYOUT", "A"]), st.sampled_from([None, "v41", 1]), max_size=1
        ),
    },
)
ROUTER = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.sampled_from(["round_robin", "cache_aware"]),
        "prometheus_port": st.sampled_from([29000, 29001, 30000, 28001]),
        "health_check_timeout_secs": st.integers(1, 60),
        "disable_circuit_breaker": st.booleans(),
    },
)
PROFILES = st.fixed_dictionaries(
    {
        "topology": st.sampled_from(["single", "replicas", "pd"]),
        "gpus": st.sampled_from([1, 2, 4, 8]),
        "arguments": ARGUMENTS,
        "checkpoint": st.sampled_from(["deepseek-v4-flash", "deepseek-v4-flash-0731", "deepseek-v4-flash-nvfp4"]),
        "complete": st.sampled_from([True, True, True, False]),
    },
    optional={"replicas": st.integers(1, 4), "router": ROUTER, "prefill": OVERRIDES, "decode": OVERRIDES},
)
BASE: dict[str, Any] = {
    "purpose": "random",
    "evidence": "none",
    "engine": "sglang-0.5.23",
    "gpu_memory_gib": 90,
    "compute_capability": "12.0",
    "served_model_name": "m",
    "gates": {"question": "q", "answer": "a"},
}


def completed(profile: dict[str, Any]) -> dict[str, Any]:
    """Mostly what a topology needs is there, and what another needs is not: or hardly any would be accepted."""
    topology = profile["topology"]
    if not profile.pop("complete"):
        return {**BASE, **profile}
    fitting: dict[str, Any] = {"gpus": profile["arguments"]["tp_size"]}
    if topology == "single":
        profile = {key: profile[key] for key in ("topology", "arguments", "checkpoint")}
    else:
        fitting |= {"router_engine": "router-0.3.2", "router": profile.get("router", {})}
    if topology == "replicas":
        profile = {key: value for key, value in profile.items() if key not in ("prefill", "decode")}
        fitting["replicas"] = max(2, profile.get("replicas", 2))
    if topology == "pd":
        profile.pop("replicas", None)
        profile["arguments"]["disaggregation_transfer_backend"] = "nixl"
    return {**BASE, **profile, **fitting}


def test_what_is_not_refused_fits_together(tmp_path: Path) -> None:
    for folder in ("engines", "checkpoints", "nccl"):
        (tmp_path / folder).symlink_to(GROUP_DATA / folder)
    (tmp_path / "profiles").mkdir()
    seen: Counter[str] = Counter()

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(PROFILES, st.sampled_from([4, 7, 8]), st.sampled_from([30000, 30000, 30001, 30100]))
    def check(profile: dict[str, Any], cards: int, port: int) -> None:
        text = yaml.safe_dump(completed(profile))
        (tmp_path / "profiles" / "random.yaml").write_text(text, encoding="utf-8")
        state = worlds.host_state(gpus=[worlds.gpu(index) for index in range(cards)])
        try:
            plan = make_plan(load_wanted(worlds.site(profile="random", port=port), tmp_path), state)
            release = Release(plan)
            refusals.check(plan, release)
        except Refused as refusal:
            lines = [str(problem) for problem in refusal.problems]
            assert all(LINE.fullmatch(line) for line in lines), lines
            if not all(about_the_checkpoint(line) for line in lines):
                seen["refused"] += 1
                return
        seen[plan.wanted.profile.topology] += 1
        assert release.digest
        nothing_is_shared(plan.units)
        for unit in plan.units:
            parser_of(unit.engine.data.package).parse_args(unit.argv[3:])

    check()
    assert min(seen[kind] for kind in ("single", "replicas", "pd", "refused")) >= 10, seen


def about_the_checkpoint(line: str) -> bool:
    """Its manifest is the operator's to make, whatever the profile is."""
    return line.startswith("group_data/checkpoints/")


def nothing_is_shared(units: tuple[Unit, ...]) -> None:
    ports = [port for unit in units for port in unit.ports.values()]
    cards = [gpu.pci for unit in units for gpu in unit.gpus]
    assert len(set(ports)) == len(ports)
    assert len(set(cards)) == len(cards)
    for unit in units:
        numbers = unit.environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if unit.gpus else []
        assert sorted(map(int, numbers)) == list(range(len(unit.devices)))
        assert {gpu.pci for gpu in unit.gpus} <= {gpu.pci for gpu in unit.devices}
