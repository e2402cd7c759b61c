"""Who holds GPU memory right now, read from the kernel's list of sockets (see claim.py)."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox.gpu.devices import Gpu, short

SOCKETS = Path("/proc/net/unix")
NAME = re.compile(r" @(sandbox-gpu/(\d+)/([0-9a-f:.,]+)/(\d+))$", re.MULTILINE)
# Written at each call when release is slow: nvidia-smi has no memory of its own. Only root's calls count.
SEEN = Path("/run/sandbox-gpu.json")


@dataclass(frozen=True)
class Holder:
    """A process with memory (MiB) on some cards; `alive` is false while its memory is being released."""

    name: str
    pid: int
    buses: tuple[str, ...]
    mib: int
    alive: bool = True

    @classmethod
    def parse(cls, name: str, alive: bool = True) -> Holder:
        """Read a holder from the name of its socket."""
        _, pid, buses, mib = name.split("/")
        return cls(name, int(pid), tuple(buses.split(",")), int(mib), alive)

    def holds(self, gpu: Gpu) -> bool:
        """Tell whether it has memory on the card."""
        return short(gpu.pci) in self.buses

    @property
    def process_name(self) -> str:
        """First word of its command line, which is the title for a process that gave itself one."""
        folder = Path(f"/proc/{self.pid}")
        with contextlib.suppress(OSError):
            title = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").strip()
            return title or (folder / "comm").read_text().strip()
        return "[Not Found]"


def holders(release_s: float) -> list[Holder]:
    """Return the live holders, then those gone for less than `release_s` seconds."""
    names = [match[1] for match in NAME.finditer(SOCKETS.read_text())]
    live = [holder for holder in map(Holder.parse, names) if _runs(holder.pid)]
    return live + (_releasing({holder.name for holder in live}, release_s) if release_s else [])


def _runs(pid: int) -> bool:
    """Tell whether the process lives: a forked child may have inherited the socket of one that does not."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _releasing(live: set[str], release_s: float) -> list[Holder]:
    now = time.time()
    seen = _read_seen() | dict.fromkeys(live, now)
    recent = {name: when for name, when in seen.items() if now - when < release_s}
    _write_seen(recent)
    return [Holder.parse(name, alive=False) for name in recent if name not in live]


def _read_seen() -> dict[str, float]:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return dict(json.loads(SEEN.read_text()))
    return {}


def _write_seen(seen: dict[str, float]) -> None:
    with contextlib.suppress(PermissionError):
        fresh = SEEN.with_suffix(".new")
        fresh.write_text(json.dumps(seen))
        fresh.rename(SEEN)


def total_mib(holding: Iterable[Holder], gpu: Gpu) -> int:
    """Return the memory (MiB) that holders have on a card."""
    return sum(holder.mib for holder in holding if holder.holds(gpu))
