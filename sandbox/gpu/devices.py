"""The eight cards of a sandbox host, as a two-socket server with RTX PRO 6000 Server Edition cards has them.

Two groups of four, each on the PCI root of one socket. Device minors follow the order in which the driver
found the cards and not PCI addresses, so that code which takes one for the other fails here first.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
MEMORY_MIB = 97887
BAR1_MIB = 131072
COMPUTE_CAPABILITY = "12.0"
POWER_LIMIT_W = 600.0
CPUS_PER_NODE = 64


@dataclass(frozen=True)
class Gpu:
    """One card: its PCI bus, the number in its device node's name, and its NUMA node."""

    bus: int
    minor: int
    numa_node: int

    @property
    def pci(self) -> str:
        """Address as the kernel writes it."""
        return f"0000:{self.bus:02x}:00.0"

    @property
    def bus_id(self) -> str:
        """Address as nvidia-smi writes it."""
        return f"00000000:{self.bus:02X}:00.0"

    @property
    def uuid(self) -> str:
        """Identity that survives moves between slots."""
        return f"GPU-5a9d0b0c-0000-4000-8000-{self.bus:012x}"


INVENTORY = (
    Gpu(0x01, 5, 0),
    Gpu(0x21, 4, 0),
    Gpu(0x41, 7, 0),
    Gpu(0x61, 6, 0),
    Gpu(0x81, 1, 1),
    Gpu(0xA1, 0, 1),
    Gpu(0xC1, 3, 1),
    Gpu(0xE1, 2, 1),
)


def short(pci: str) -> str:
    """Return any spelling of a PCI address as lower-case bus:device.function; the domain is always 0 here."""
    return ":".join(pci.lower().split(":")[-2:])


def find(selector: str) -> Gpu:
    """Return a card by PCI address in any spelling, or by its place (0..7) in PCI order. Raises KeyError."""
    for place, gpu in enumerate(INVENTORY):
        if selector == str(place) or short(selector) == short(gpu.pci):
            return gpu
    raise KeyError(selector)
