"""The GPU stand-in numbers cards as CUDA does: without those that a unit may not open."""

from pathlib import Path

import pytest

from sandbox.gpu import claim
from sandbox.gpu.devices import INVENTORY


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu in INVENTORY:
        folder = tmp_path / gpu.pci
        folder.mkdir()
        (folder / "information").write_text(f"Model: x\nDevice Minor:    {gpu.minor}\n")
    monkeypatch.setattr(claim, "DRIVER_FOLDER", str(tmp_path))


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("minors", "visible", "expected"),
    [
        ({1, 0, 3, 2}, "0,1", ["0000:81:00.0", "0000:a1:00.0"]),
        ({1, 0, 3, 2}, None, ["0000:81:00.0", "0000:a1:00.0", "0000:c1:00.0", "0000:e1:00.0"]),
        ({5, 1}, "1,0", ["0000:81:00.0", "0000:01:00.0"]),
    ],
)
def test_what_a_unit_may_open_counts_from_0(
    monkeypatch: pytest.MonkeyPatch, minors: set[int], visible: str | None, expected: list[str]
) -> None:
    monkeypatch.setattr(claim, "_may_open", lambda node: int(node.removeprefix("/dev/nvidia")) in minors)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert claim.seen_by_cuda() == expected
    assert claim.addresses(["cuda:0", "0", "0000:41:00.0"]) == [expected[0], "0000:01:00.0", "0000:41:00.0"]
