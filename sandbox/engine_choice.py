"""Which engine the sandbox serves with: the small CPU environment where its wheel is to be had, else production's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LIGHT, FULL = "sandbox-light", "sglang-0.5.23"
# The lock of the light engine pins this build, which package indexes do not carry: it must lie in a folder.
CPU_TORCH = "torch-2.13.0+cpu-cp311-*.whl"


@dataclass(frozen=True)
class Choice:
    """An engine of group_data/engines/ and why it was taken."""

    engine: str
    why: str


def choose(wheels: Path | None) -> Choice:
    """The engine to serve with, given the folder of wheels that PIP_FIND_LINKS names."""
    if wheels and any(wheels.glob(CPU_TORCH)):
        return Choice(LIGHT, f"{wheels} (PIP_FIND_LINKS) has a CPU build of torch")
    return Choice(FULL, f"no folder named by PIP_FIND_LINKS has {CPU_TORCH}")
