"""What it costs to check a checkpoint by every byte, and by its stamp."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.kit import timed
from bench.rows import Row
from hostkit import stamps, verify
from hostkit.events import Progress
from tasks import bundle

PYTHON = "/usr/bin/python3"
_STAMPED, _GOAL_S = 100, 0.05
_CHECK = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from hostkit import paths, stamps
paths.CHECKPOINT_STAMPS = Path(sys.argv[2])
assert stamps.is_verified(Path(sys.argv[3])) is None
"""


def rows(folder: Path, files: dict[str, Any], rounds: int) -> Iterator[Row]:
    """Every byte on all cores against one core's rate; then the stamp."""
    total, cores = int(sum(file["size"] for file in files.values())), os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as job:
        progress = Progress(Path(job))

        def every_byte() -> float:
            began = time.monotonic()
            if verify.damage(folder, files, progress):
                raise timed.Failed(f"{folder} was found damaged")
            return total / (time.monotonic() - began) / 1e6

        rates = timed.interleaved(rounds, one_core=_one_core, every_byte=every_byte)
    one = rates["one_core"]
    yield Row("sha256, one core", one, "MB/s", "itself", 1.0)
    yield Row(
        f"every byte checked, {cores} cores",
        rates["every_byte"],
        "MB/s",
        f"{cores} x one core",
        rates["every_byte"] / one / cores,
    )
    yield from _stamp(rounds)


def _one_core() -> float:
    """MB/s of sha256 over a block that stays in the core's cache."""
    block, found, began = os.urandom(1 << 20), hashlib.sha256(), time.monotonic()
    for _ in range(1024):
        found.update(block)
    return float(1024 * len(block) / (time.monotonic() - began) / 1e6)


def _stamp(rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as root:
        place, archive = Path(root) / "owner/model/main", Path(root) / "hostkit.pyz"
        place.mkdir(parents=True)
        archive.write_bytes(bundle.archive())
        names = [f"model-{number:05d}.safetensors" for number in range(_STAMPED)]
        for name in names:
            (place / name).write_bytes(b"x")
        seen = {name: stamps.identity(place / name) for name in names}
        document = {"schema": 1, "repository": "owner/model", "revision": "main", "files": seen, "manifest": {}}
        (Path(root) / "owner_model_main.json").write_text(json.dumps(document))
        times = timed.interleaved(
            5 * rounds,
            start=lambda: timed.command(PYTHON, "-I", "-c", "pass").seconds,
            check=lambda: timed.command(PYTHON, "-I", "-c", _CHECK, str(archive), root, str(place)).seconds,
        )
    beyond = times["check"] - times["start"]
    yield Row(f"stamp of {_STAMPED} files, beyond the interpreter's start", beyond, "s", "goal", beyond / _GOAL_S)
