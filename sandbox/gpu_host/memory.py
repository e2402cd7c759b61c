"""GPU memory over time, as the driver tells it outside of the machine: whether it was idle before each start."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PERIOD_MS = 200
# With the driver's own time: what comes through a pipe may come late.
_FIELDS = "timestamp,index,memory.used,utilization.gpu"
_QUERY = [f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", f"--loop-ms={PERIOD_MS}"]


@contextlib.contextmanager
def sampled(path: Path) -> Iterator[None]:
    """Append "time (s since 1970),index,MiB,percent" five times a second to the file; nothing without nvidia-smi."""
    tool = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    if not Path(tool).exists():
        yield
        return
    at_once = ["stdbuf", "--output=L"] if shutil.which("stdbuf") else []
    sampler = subprocess.Popen([*at_once, tool, *_QUERY], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    writer = threading.Thread(target=_copy, args=(sampler, path), daemon=True)
    writer.start()
    try:
        yield
    finally:
        sampler.terminate()
        writer.join(5)


def _copy(sampler: subprocess.Popen[str], path: Path) -> None:
    assert sampler.stdout is not None  # asked for one function above
    with path.open("a", buffering=1) as file:
        for line in sampler.stdout:
            with contextlib.suppress(ValueError):  # a line about an error, or half a line at the end
                file.write(row(line))


def row(line: str) -> str:
    """A line of nvidia-smi with its time as seconds. Raises ValueError for any other line."""
    at, *values = line.strip().split(", ")
    moment = time.mktime(time.strptime(at[:19], "%Y/%m/%d %H:%M:%S")) + float(f"0{at[19:]}")
    return f"{moment:.3f},{','.join(values)}\n"


def around(samples: Path, starts: Sequence[float]) -> list[dict[str, float]]:
    """For each start: MiB in the last sample before it, and the most until the next start."""
    rows = [line.split(",") for line in samples.read_text().splitlines()] if samples.exists() else []
    read = [(float(row[0]), float(row[2])) for row in rows if len(row) >= 3]
    ends = [*starts[1:], float("inf")]
    return [_around(read, start, end) for start, end in zip(starts, ends, strict=True)]


def _around(read: Sequence[tuple[float, float]], start: float, end: float) -> dict[str, float]:
    before = [mib for at, mib in read if at < start]
    after = [mib for at, mib in read if start <= at < end]
    return {"start": start, "mib_before": before[-1] if before else -1, "most_mib_after": max(after, default=-1)}
