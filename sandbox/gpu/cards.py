"""One reading of all cards: numbering, memory in use, and the processes to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.gpu.devices import MEMORY_MIB, Gpu, short
from sandbox.gpu.holders import Holder, holders, total_mib
from sandbox.gpu.state import State

# The driver's own share on a card with a process: 10 MiB, as driver 580 with SGLang on an H200 showed.
DRIVER_MIB = 10


@dataclass(frozen=True)
class Card:
    """A card as nvidia-smi numbers it, with its memory in use (MiB) and its live processes."""

    index: int
    gpu: Gpu
    used_mib: int
    processes: tuple[Holder, ...]

    @property
    def free_mib(self) -> int:
        """Memory (MiB) not in use."""
        return MEMORY_MIB - self.used_mib

    def is_called(self, selector: str) -> bool:
        """Tell whether `selector` (number, UUID or PCI address) means this card."""
        return selector in (str(self.index), self.gpu.uuid) or (
            ":" in selector and short(selector) == short(self.gpu.pci)
        )


def read(state: State) -> list[Card]:
    """Return the cards that the driver sees, in PCI order."""
    holding = holders(state.release_s)
    return [_card(index, gpu, state, holding) for index, gpu in enumerate(state.present())]


def _card(index: int, gpu: Gpu, state: State, holding: Sequence[Holder]) -> Card:
    here = [holder for holder in holding if holder.holds(gpu)]
    used = total_mib(here, gpu) + state.unexplained_mib(gpu) + (DRIVER_MIB if here else 0)
    return Card(index, gpu, min(used, MEMORY_MIB), tuple(holder for holder in here if holder.alive))
