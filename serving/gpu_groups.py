"""Which GPUs a worker gets: groups by PCI address, never by index, since a lost card shifts every index behind it."""

from collections.abc import Sequence
from itertools import groupby, zip_longest

from serving.schemas import Gpu

Group = tuple[Gpu, ...]


def groups(cards: Sequence[Gpu], named: Sequence[Sequence[str]] | None) -> list[Group]:
    """The groups that the operator named, or one a NUMA node, or the halves of the host in PCI order.

    A card named that the host does not have is left out here; refusals.py says so.
    """
    if named is not None:
        by_pci = {card.pci: card for card in cards}
        return [tuple(by_pci[pci] for pci in group if pci in by_pci) for group in named]
    in_order = sorted(cards, key=lambda card: card.pci)
    if any(card.numa_node is None for card in in_order):
        middle = (len(in_order) + 1) // 2
        return [half for half in (tuple(in_order[:middle]), tuple(in_order[middle:])) if half]
    by_node = sorted(in_order, key=lambda card: card.numa_node or 0)  # stable: still in PCI order within a node
    return [tuple(found) for _, found in groupby(by_node, key=lambda card: card.numa_node)]


def for_workers(found: Sequence[Group], size: int, count: int) -> list[Group]:
    """`size` GPUs for each of `count` workers, one group after the other, so that workers share a group last.

    A worker gets cards of one group; only one that is larger than every group spans them. Where the host has too few,
    a worker gets fewer or none, and refusals.py says so.
    """
    if all(len(group) < size for group in found):
        found = [tuple(card for group in found for card in group)]
    pieces = [[group[at : at + size] for at in range(0, len(group) - size + 1, size)] for group in found]
    in_turn = [piece for row in zip_longest(*pieces) for piece in row if piece]
    return [in_turn[number] if number < len(in_turn) else () for number in range(count)]


def node_of(cards: Sequence[Gpu]) -> int | None:
    """The one NUMA node that all of the cards hang on."""
    nodes = {card.numa_node for card in cards}
    return nodes.pop() if len(nodes) == 1 else None
