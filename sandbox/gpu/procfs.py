"""The files that the NVIDIA driver shows under /proc/driver/nvidia, as a folder to be bound there."""

from __future__ import annotations

import shutil
from pathlib import Path

from sandbox.gpu.devices import MODEL, Gpu
from sandbox.gpu.state import State

FOLDER = "opt/sandbox/gpu/driver"


def render(root: Path, state: State) -> None:
    """Write the folder under `root` for the cards and the driver of `state`.

    The top folder stays, as it may be mounted; whatever is in it is made anew.
    """
    top = root / FOLDER / "nvidia"
    top.mkdir(parents=True, exist_ok=True)
    (top / "version").write_text(_version(state))
    shutil.rmtree(top / "gpus", ignore_errors=True)
    for gpu in state.present():
        folder = top / "gpus" / gpu.pci
        folder.mkdir(parents=True)
        (folder / "information").write_text(_information(gpu))


def _version(state: State) -> str:
    module = f"NVIDIA UNIX Open Kernel Module for x86_64  {state.driver_version}  Release Build  (sandbox)"
    return f"NVRM version: {module}\n"


def _information(gpu: Gpu) -> str:
    entries = {
        "Model": MODEL,
        "IRQ": "0",
        "GPU UUID": gpu.uuid,
        "Bus Type": "PCIe",
        "Bus Location": gpu.pci,
        "Device Minor": str(gpu.minor),
    }
    return "".join(f"{key + ':':<16} {value}\n" for key, value in entries.items())


if __name__ == "__main__":
    render(Path("/"), State.load())
