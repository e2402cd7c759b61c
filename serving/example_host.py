"""A host with all it needs, as a look would find it: to show what a profile becomes without one at hand."""

from typing import Any

from serving.schemas import HostState

_EMPTY_LISTS = ("gpu_uses", "servers", "listeners", "jobs")
_EMPTY_MAPPINGS = ("files", "packages", "units", "engines", "checkpoints", "records")
_ABSENT = ("driver_error", "active", "last_good", "intent", "hold")


def eight_cards() -> HostState:
    """8x RTX PRO 6000, four on each of two sockets, and nothing installed."""
    return HostState.from_json(
        {
            "schema": 1,
            "hostname": "example",
            "os": "Ubuntu 24.04",
            "init": "systemd",
            "arch": "x86_64",
            "glibc": "2.39",
            "pythons": {"3.12": "/usr/bin/python3.12", "3.11": "/usr/bin/python3.11"},
            "driver": "580.126.09",
            "gpus": [_card(index) for index in range(8)],
            "free_gb": {"/opt/sglang": 500.0},
            "users": {"root": 0},
            **{key: [] for key in _EMPTY_LISTS},
            **{key: {} for key in _EMPTY_MAPPINGS},
            **dict.fromkeys(_ABSENT),
        }
    )


def _card(index: int) -> dict[str, Any]:
    return {
        "pci": f"0000:{0x20 * index + 1:02x}:00.0",
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "memory_total_mib": 97887,
        "memory_used_mib": 0,
        "compute_capability": "12.0",
        "minor": index,
        "numa_node": index // 4,
    }
