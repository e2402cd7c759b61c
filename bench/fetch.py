"""What it costs to bring a checkpoint, beside the ways of others; and to check one. `make bench NAME=fetch`.

46 files, 4 GiB together, as the checkpoint of the default profile in small, from the local hub, whose link is limited
to 500 MB/s and 10 ms. Source and targets are in memory where there is enough: the disk is not what is measured, and it
would only hold up the one that flushes what it fetched. BENCH_FETCH_MIB and BENCH_FETCH_ROUNDS
take other figures.
"""

import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.kit import checking, fetchers, timed
from bench.rows import Row
from sandbox.model_hub.running import Hub
from tests.fetching import REPOSITORY, manifest

FILES, SIZE_MIB = 46, int(os.environ.get("BENCH_FETCH_MIB", 4096))
LINK = {"rate": 500e6, "delay_ms": 10}
ROUNDS = int(os.environ.get("BENCH_FETCH_ROUNDS", 3))
GOAL_PEAK_MIB, GOAL_AGAIN_MIB = 300.0, 64.0


def measure() -> Iterator[Row]:
    """Rows of medians. Raises timed.Failed when a way does not bring all."""
    with _room() as root:
        models = _models(root / "models")
        files = manifest(models / REPOSITORY)
        yield from _fetched(root, models, files, "500 MB/s, 10 ms", LINK)
        yield from _fetched(root, models, files, "no limit", {})
        yield from _killed(root, models, files)
        yield from checking.rows(models / REPOSITORY, files, ROUNDS)


@contextmanager
def _room() -> Iterator[Path]:
    needed = 2.5 * SIZE_MIB * 2**20
    memory = Path("/dev/shm")  # noqa: S108 (a folder of its own below)
    place = memory if _available() > needed and shutil.disk_usage(memory).free > needed else None
    print(f"bench: in {place or tempfile.gettempdir()}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-fetch-", dir=place) as folder:
        yield Path(folder)


def _available() -> float:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _models(folder: Path) -> Path:
    """No two files are alike; within one a block repeats itself, which neither links nor hashes notice."""
    (folder / REPOSITORY).mkdir(parents=True)
    for number in range(FILES):
        block, left = os.urandom(1 << 20), SIZE_MIB * 2**20 // FILES
        with (folder / REPOSITORY / f"model-{number + 1:05d}-of-{FILES:05d}.safetensors").open("wb") as file:
            while left:
                left -= file.write(block[:left])
    return folder


def _fetched(root: Path, models: Path, files: dict[str, Any], where: str, link: dict[str, float]) -> Iterator[Row]:
    ends: dict[str, list[fetchers.Ended]] = {make.__name__: [] for make in fetchers.ALL}

    def once(make: Any) -> float:
        with _fresh(root) as place, Hub(models, place / "state", **link) as hub:
            fetcher = make(place / "target", hub.endpoint, files)
            ended = fetcher.run()
            ends[make.__name__].append(ended)
        return float(ended.seconds)

    print(f"bench: {where}, {ROUNDS} rounds", file=sys.stderr, flush=True)
    times = timed.interleaved(ROUNDS, **{make.__name__: lambda make=make: once(make) for make in fetchers.ALL})
    best = min(name for name in times if name != "ours" and times[name] == _best(times))
    for name, seconds in times.items():
        yield Row(f"{name}, {where}", SIZE_MIB * 2**20 / seconds / 1e6, "MB/s", f"best: {best}", times[best] / seconds)
    cores = {name: statistics.median(one.cpu_s for one in found) for name, found in ends.items()}
    for name, seconds in cores.items():
        yield Row(f"{name}, {where}: time on cores", seconds, "s", f"best: {best}", seconds / cores[best])
    peak = max(one.peak_mib for one in ends["ours"])
    yield Row(f"ours, {where}: peak memory", peak, "MiB", "goal", peak / GOAL_PEAK_MIB)


def _best(times: dict[str, float]) -> float:
    return min(seconds for name, seconds in times.items() if name != "ours")


@contextmanager
def _fresh(root: Path) -> Iterator[Path]:
    place = root / "now"
    (place / "state").mkdir(parents=True)
    (place / "target").mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)


def _killed(root: Path, models: Path, files: dict[str, Any]) -> Iterator[Row]:
    """kill -9 when half is there, and a second run: what the hub had to send more than once."""
    for make in fetchers.ALL:
        with _fresh(root) as place, Hub(models, place / "state", **LINK) as hub:
            fetcher = make(place / "target", hub.endpoint, files)
            began = time.monotonic()
            fetcher.begin().kill_at(SIZE_MIB * 2**20 // 2)
            fetcher.run()
            again = (hub.sent() - sum(file["size"] for file in files.values())) / 2**20
            seconds = time.monotonic() - began
        row = Row(f"{make.__name__}: fetched again after kill -9 at half", again, "MiB", "goal", again / GOAL_AGAIN_MIB)
        yield from itertools.chain([row], [Row(f"{make.__name__}: both runs", seconds, "s", "itself", 1.0)])
