"""nvidia-smi topo: how the cards are connected. PCIe only, four cards a socket, peer access everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox.gpu.cards import Card
from sandbox.gpu.devices import CPUS_PER_NODE

# The real tool underlines its heading also when it writes into a pipe, so a parser had better cope with it.
UNDERLINED, PLAIN = "\x1b[4m", "\x1b[0m"
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks"""
P2P_LEGEND = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown"""


def matrix(cards: Sequence[Card]) -> list[str]:
    """Answer topo -m."""
    names = "\t".join(f"GPU{card.index}" for card in cards)
    lines = [f"\t{UNDERLINED}{names}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID{PLAIN}"]
    for card in cards:
        links = "\t".join(_row(card, cards, _link, " X "))
        node = card.gpu.numa_node
        cpus = f"{node * CPUS_PER_NODE}-{(node + 1) * CPUS_PER_NODE - 1}"
        lines.append(f"GPU{card.index}\t{links}\t{cpus}\t{node}\t\tN/A")
    return [*lines, LEGEND]


def peers(cards: Sequence[Card]) -> list[str]:
    """Answer topo -p2p r and topo -p2p w."""
    lines = [" \t" + "".join(f"GPU{card.index}\t" for card in cards)]
    for card in cards:
        cells = _row(card, cards, lambda _one, _other: "OK", "X")
        lines.append(f" GPU{card.index}\t" + "".join(f"{cell}\t" for cell in cells))
    return [*lines, P2P_LEGEND]


def _row(card: Card, cards: Sequence[Card], link: Callable[[Card, Card], str], itself: str) -> list[str]:
    return [itself if card is other else link(card, other) for other in cards]


def _link(one: Card, other: Card) -> str:
    return "NODE" if one.gpu.numa_node == other.gpu.numa_node else "SYS"
