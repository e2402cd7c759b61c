"""GPU groups: by PCI address, one a socket, as the operator named them; what cannot be is refused in one line."""

from pathlib import Path
from typing import Any

import pytest

from hostkit import gpus
from serving import gpu_groups
from serving.problems import Refused
from serving.schemas import Gpu
from tests.unit import worlds


def cards(*nodes: int | None) -> list[Gpu]:
    """One card a node given, in PCI order."""
    return [Gpu.model_validate(worlds.gpu(index, numa_node=node)) for index, node in enumerate(nodes)]


def numbers(found: Any) -> list[list[int]]:
    return [[card.index for card in group] for group in found]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ((0, 0, 0, 0, 1, 1, 1, 1), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ((1, 1, 0, 0), [[2, 3], [0, 1]]),
        ((0, 1, 0, 1), [[0, 2], [1, 3]]),
        ((None,) * 8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ((0, 0, None, 1), [[0, 1], [2, 3]]),
        ((None,) * 3, [[0, 1], [2]]),
        ((0,), [[0]]),
        ((), []),
    ],
)
def test_a_host_falls_into_its_sockets_or_else_its_halves(nodes: tuple[int | None, ...], expected: Any) -> None:
    assert numbers(gpu_groups.groups(cards(*nodes), None)) == expected


@pytest.mark.parametrize(
    ("size", "count", "expected"),
    [
        (4, 1, [[0, 1, 2, 3]]),
        (4, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (2, 4, [[0, 1], [4, 5], [2, 3], [6, 7]]),
        (8, 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (4, 3, [[0, 1, 2, 3], [4, 5, 6, 7], []]),
        (3, 3, [[0, 1, 2], [4, 5, 6], []]),
    ],
)
def test_workers_are_spread_over_the_groups(size: int, count: int, expected: Any) -> None:
    found = gpu_groups.groups(cards(0, 0, 0, 0, 1, 1, 1, 1), None)
    assert numbers(gpu_groups.for_workers(found, size, count)) == expected


def test_with_a_card_lost_a_worker_goes_where_a_whole_group_is() -> None:
    found = gpu_groups.groups(cards(0, 0, 0, 1, 1, 1, 1), None)
    assert numbers(gpu_groups.for_workers(found, 4, 2)) == [[3, 4, 5, 6], []]


def test_named_groups_hold_by_address_whatever_the_order() -> None:
    host = cards(*(None,) * 4)
    named = [[host[3].pci, host[1].pci], [host[0].pci]]
    assert numbers(gpu_groups.groups(host, named)) == [[3, 1], [0]]
    assert numbers(gpu_groups.groups(host[1:], named)) == [[3, 1], []]


def test_the_node_of_a_group_is_known_where_all_cards_agree() -> None:
    assert gpu_groups.node_of(cards(1, 1)) == 1
    assert gpu_groups.node_of(cards(0, 1)) is None
    assert gpu_groups.node_of(cards(None, None)) is None
    assert gpu_groups.node_of([]) is None


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None), (None, None)])
def test_the_look_reads_the_node_from_the_kernel(tmp_path: Path, text: str | None, node: int | None) -> None:
    device = tmp_path / "0000:41:00.0"
    if text is not None:
        device.mkdir()
        (device / "numa_node").write_text(text)
    assert gpus.numa_node("0000:41:00.0", tmp_path) == node


def test_an_address_may_be_pasted_from_nvidia_smi() -> None:
    site = worlds.site(gpu_groups=[["00000000:1B:00.0"]])
    assert site.gpu_groups == [["0000:1b:00.0"]]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ([["0000:01:00.0"], ["0000:21:00.0", "0000:01:00.0"]], "gpu_groups: overlap: 0000:01:00.0 is named twice"),
        ([["GPU0"]], "gpu_groups.0.0: 'GPU0' is no PCI address; write it as `nvidia-smi"),
        ([[0]], "gpu_groups.0.0: input should be a valid string, not 0"),
        ([[]], "gpu_groups.0: list should have at least 1 item"),
        (5, "gpu_groups: input should be a valid list, not 5"),
    ],
)
def test_groups_that_cannot_be_are_refused(setting: Any, expected: str) -> None:
    with pytest.raises(Refused) as refusal:
        worlds.site(gpu_groups=setting)
    assert str(refusal.value.problems[0]).startswith(f"group_data: {expected}")
