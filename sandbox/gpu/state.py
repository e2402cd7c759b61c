"""What a test may change about the cards: one JSON file on the host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from sandbox.gpu.devices import INVENTORY, Gpu, find


@dataclass(frozen=True)
class State:
    """Faults of driver and cards. A card is named by PCI address or by its place (0..7) in address order."""

    PATH: ClassVar[str] = "/etc/sandbox-gpu.json"

    driver_version: str = "580.126.09"
    cuda_version: str = "13.0"
    #: cards that have fallen off the bus; the others close the gap in nvidia-smi's numbering
    missing: tuple[str, ...] = ()
    #: memory (MiB) in use on a card that no process is shown for
    used_mib: Mapping[str, int] = field(default_factory=dict)
    #: what nvidia-smi prints, on every call, before it ends with status 9; None: it works
    failure: str | None = None
    #: for so long (s) memory stays in use after nvidia-smi last saw the process that held it
    release_s: float = 0.0
    #: how long (s) each nvidia-smi call takes
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise KeyError for a card that does not exist: a fault nobody sees would make a test pass in vain."""
        for selector in (*self.missing, *self.used_mib):
            find(selector)

    @classmethod
    def load(cls, path: str = PATH) -> State:
        """Read the file. Raises TypeError for a field that does not exist."""
        return cls(**json.loads(Path(path).read_text()))

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def present(self) -> list[Gpu]:
        """Return the cards that the driver sees, in PCI order, which is nvidia-smi's order."""
        gone = {find(selector) for selector in self.missing}
        return [gpu for gpu in INVENTORY if gpu not in gone]

    def unexplained_mib(self, gpu: Gpu) -> int:
        """Return the memory (MiB) in use on a card that no process is shown for."""
        return sum(mib for selector, mib in self.used_mib.items() if find(selector) == gpu)
