"""Whether a start that says nothing is at work: CPU time and bytes read by the processes of its unit."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from hostkit import processes

# Below this a process does nothing but wait: an idle Python with threads takes some thousandths of a core.
_BUSY_CORES = 0.05
_BUSY_BYTES_PER_S = 1_000_000
_INTERVAL_S = 5.0


@dataclass(frozen=True)
class Sample:
    """Since their start: CPU time (s) and bytes that the processes made the disk read, at a monotonic time (s)."""

    at: float
    cpu_s: float
    read_bytes: int


class Activity:
    """Watches one control group. `idle_s` is for how long neither CPU, nor disk, nor log moved."""

    def __init__(self, control_group: str) -> None:
        self._group = control_group
        self._last = self._sample()
        self._moved = self._last.at
        self.text = ""

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self._moved

    def look(self, logged: bool) -> None:
        """Sample anew, every few seconds at most; `logged`: a line came since the last call."""
        now = time.monotonic()
        if logged:
            self._moved = now
        if now - self._last.at < _INTERVAL_S:
            return
        sample = self._sample()
        took = sample.at - self._last.at
        cores, rate = (sample.cpu_s - self._last.cpu_s) / took, (sample.read_bytes - self._last.read_bytes) / took
        if cores > _BUSY_CORES or rate > _BUSY_BYTES_PER_S:
            self._moved = now
        self.text = f"{cores:.1f} cores busy, {max(0.0, rate) / 1e6:.0f} MB/s read"
        self._last = sample

    def _sample(self) -> Sample:
        return Sample(time.monotonic(), self._cpu_s(), sum(map(_read_bytes, processes.of_control_group(self._group))))

    def _cpu_s(self) -> float:
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = (processes.CGROUPS / self._group.lstrip("/") / "cpu.stat").read_text()
            return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e6
        return 0.0


def _read_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/io").read_text()
        return int(text.partition("\nread_bytes:")[2].split()[0])
    return 0
