"""Hosts and settings for tests: a healthy box, and changes to it."""

from typing import Any

from serving.plan import Plan, load_wanted, make_plan
from serving.release import Release
from serving.schemas import HostState
from serving.site import Site, load_site

GPU_NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def site(**changes: Any) -> Site:
    settings = {"profile": "tp4-mxfp4", "models": "/srv/models", "listen": "127.0.0.1", "port": 30000}
    return load_site({**settings, "restart": "allow", **changes}, from_command_line=changes)


def host_state(**changes: Any) -> HostState:
    """A bare box with eight idle cards, everything a profile needs, and nothing installed."""
    document = {
        "schema": 1,
        "hostname": "gpu1",
        "os": "Ubuntu 24.04.3 LTS",
        "init": "systemd",
        "arch": "x86_64",
        "glibc": "2.39",
        "pythons": {"3.12": "/usr/bin/python3.12", "3.11": "/usr/bin/python3.11"},
        "driver": "580.126.09",
        "driver_error": None,
        "gpus": [gpu(index) for index in range(8)],
        "gpu_uses": [],
        "servers": [],
        "free_gb": {"/opt/sglang": 500.0, "/srv/models": 500.0, "/var/lib/sglang": 500.0},
        "files": {},
        "packages": {},
        "users": {"root": 0},
        "units": {},
        "listeners": [],
        "active": None,
        "last_good": None,
        "engines": {},
        "checkpoints": {},
        "jobs": [],
        "intent": None,
        "hold": None,
        "records": {},
        "bundle": None,
    }
    return HostState.from_json({**document, **changes})


def host_of(profile: str) -> HostState:
    """A bare box as the profile is for: the kernel knows no NUMA node of the sandbox's stand-in cards."""
    cards = [gpu(index, numa_node=None) for index in range(8)]
    return host_state(gpus=cards) if profile.startswith("sandbox") else host_state()


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    card = {
        "pci": f"0000:{index + 1:02x}:00.0",
        "index": index,
        "uuid": f"GPU-{index}",
        "name": GPU_NAME,
        "memory_total_mib": 97887,
        "memory_used_mib": 3,
        "compute_capability": "12.0",
        "minor": 7 - index,
        "numa_node": index // 4,
    }
    return {**card, **changes}


def process(**changes: Any) -> dict[str, Any]:
    return {
        "pid": 4242,
        "user": "ana",
        "age_s": 7300,
        "command": "python -m sglang.launch_server",
        "unit": "session-3.scope",
        **changes,
    }


def server(**changes: Any) -> dict[str, Any]:
    """An sglang server that ana started in her session, with all of card 0; her nohup left it to nobody."""
    return {
        "pid": 4242,
        "start_ticks": 1000,
        "pids": [[4242, 1000], [4250, 1100]],
        "user": "ana",
        "age_s": 7300,
        "command": "python -m sglang.launch_server --model-path kimi",
        "kind": "sglang server",
        "gpus": {"0000:01:00.0": 61440},
        "ports": [],
        "owner": owner(),
        **changes,
    }


def owner(**changes: Any) -> dict[str, Any]:
    texts = dict.fromkeys(("stop", "start", "back", "reason"), "")
    return {"kind": "session", "name": "session-3.scope", **texts, **changes}


def unit_state(**changes: Any) -> dict[str, Any]:
    """A running unit, as systemd shows it; what it was started from is unknown."""
    return {
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "enabled": "enabled",
        "main_pid": 7,
        "invocation_id": "abc",
        "restarts": 0,
        "needs_reload": False,
        "drop_ins": [],
        "started": None,
        **changes,
    }


def text_file(**changes: Any) -> dict[str, Any]:
    return {
        "type": "file",
        "mode": "644",
        "owner": "root",
        "group": "root",
        "sha256": "0" * 64,
        "target": None,
        **changes,
    }


def plan(state: HostState | None = None, **settings: Any) -> Plan:
    return make_plan(load_wanted(site(**settings)), state or host_state())


def release(state: HostState | None = None, **settings: Any) -> Release:
    return Release(plan(state, **settings))
