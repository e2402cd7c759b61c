"""Make the server's scheduler hold memory of the GPU stand-in, as the real one does on a real GPU.

SANDBOX_GPU_CLAIM=0000:01:00.0,0000:21:00.0/61440 names the cards and the MiB on each; cuda:0/61440 is the first card
that CUDA would see in the unit. The scheduler is known by the title that it gives itself; the claim ends with its
process, as a CUDA context does.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path
from types import ModuleType

VARIABLE = "SANDBOX_GPU_CLAIM"
SCHEDULER = "sglang::scheduler"
# In the project and on a sandbox host alike. Loaded by path: an engine's Python has no package `sandbox`.
CLAIM = Path(__file__).resolve().parents[2] / "gpu" / "claim.py"

_held: list[socket.socket] = []  # closing a socket would give the memory back


def install() -> None:
    """Claim as soon as a process of this Python calls itself a scheduler; without the variable, never."""
    wanted = os.environ.get(VARIABLE)
    # The variable is inherited by whatever the server starts, also by Pythons without the package.
    if not wanted or importlib.util.find_spec("setproctitle") is None:
        return
    import setproctitle

    set_title = setproctitle.setproctitle

    def set_title_and_claim(title: str) -> None:
        set_title(title)
        if title.startswith(SCHEDULER) and not _held:
            _held.append(hold(wanted))

    setproctitle.setproctitle = set_title_and_claim


def hold(wanted: str) -> socket.socket:
    """Claim "<pci>,<pci>/<MiB>". Raises ValueError for anything else."""
    selectors, _, mib = wanted.rpartition("/")
    module = _module()
    claimed: socket.socket = module.claim(module.addresses(selectors.split(",")), int(mib))
    return claimed


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sandbox_gpu_claim", CLAIM)
    assert spec and spec.loader, CLAIM
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
