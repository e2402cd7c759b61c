"""Hold GPU memory, as far as nvidia-smi's stand-in can see: by a socket, which dies with its process.

Abstract sockets live in the host's network namespace and leave no file, so a claim needs no writable path,
passes systemd's hardening, and cannot outlive its holder, exactly like a CUDA context. One file without
imports from the project: an engine's own Python loads it.

    python3 /opt/sandbox/gpu/claim.py --gpus 0,1 --mib 60000
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
from collections.abc import Sequence

PREFIX = "sandbox-gpu"
# What a host has under /proc/driver/nvidia by a bind mount, which a unit with a /proc of its own (ProtectProc=) lacks.
DRIVER_FOLDER = "/opt/sandbox/gpu/driver/nvidia/gpus"


def claim(pci_addresses: Sequence[str], mib: int) -> socket.socket:
    """Hold `mib` MiB on each of the GPUs until the returned socket is closed or this process ends.

    Addresses may have any domain: 00000000:01:00.0, 0000:01:00.0 or 01:00.0. Raises OSError (EADDRINUSE)
    when this process holds the very same claim already.
    """
    # Without the domain, or eight addresses would not fit into the 107 bytes of a socket's name.
    buses = ",".join(":".join(address.lower().split(":")[-2:]) for address in pci_addresses)
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    holder.bind(f"\0{PREFIX}/{os.getpid()}/{buses}/{mib}")
    return holder


def addresses(selectors: Sequence[str]) -> list[str]:
    """Return PCI addresses for selectors: addresses, places in PCI order, or cuda:N. Raises IndexError."""
    return [_address(item) for item in selectors]


def _address(selector: str) -> str:
    if selector.startswith("cuda:"):
        return seen_by_cuda()[int(selector.removeprefix("cuda:"))]
    return selector if ":" in selector else _present()[int(selector)]


def seen_by_cuda() -> list[str]:
    """Return the cards that CUDA would number in this process: those that it may open, as CUDA_VISIBLE_DEVICES says.

    A node that a unit's DeviceAllow= leaves out cannot be opened (EPERM), and CUDA counts without it. Of one that may
    be opened the stand-in says ENXIO, since no driver is behind it.
    """
    opened = [address for address in _present() if _may_open(f"/dev/nvidia{_minor(address)}")]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return opened if visible is None else [opened[int(number)] for number in visible.split(",")]


def _may_open(node: str) -> bool:
    try:
        os.close(os.open(node, os.O_RDWR))
    except OSError as error:
        return error.errno == errno.ENXIO
    return True


def _minor(address: str) -> str:
    with open(f"{DRIVER_FOLDER}/{address}/information") as file:
        return next(line.split()[-1] for line in file if line.startswith("Device Minor"))


def main() -> None:
    """Claim, tell the process id, and hold on until a signal ends the process."""
    parser = argparse.ArgumentParser(description="hold GPU memory until killed")
    parser.add_argument("--gpus", required=True, help="places in PCI order, or PCI addresses: 0,1")
    parser.add_argument("--mib", required=True, type=int, help="memory to hold on each of them (MiB)")
    options = parser.parse_args()
    holder = claim(addresses(options.gpus.split(",")), options.mib)
    print(f"pid {os.getpid()} holds {options.mib} MiB on {options.gpus}", flush=True)
    signal.pause()
    holder.close()


def _present() -> list[str]:
    return sorted(os.listdir(DRIVER_FOLDER))


if __name__ == "__main__":
    main()
