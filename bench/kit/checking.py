"""What it costs to check a checkpoint by every byte, and by its stamp."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.kit import timed
from bench.rows import Row
from hostkit import stamps, verify
from hostkit.events import Progress
from tasks import bundle

PYTHON = "/usr/bin/python3"
_STAMPED, _GOAL_S = 100, 0.05
_BLOCKS, _FILES = 1024, 8
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

        def of_a_file(number: int) -> int:
            """As anyone would do it, file after file of the same ones."""
            names = sorted(files)[number::cores][:_FILES]
            for name in names:
                with (folder / name).open("rb") as file:
                    hashlib.file_digest(file, "sha256")
            return sum(int(files[name]["size"]) for name in names)

        def every_byte() -> float:
            began = time.monotonic()
            if verify.damage(folder, files, progress):
                raise timed.Failed(f"{folder} was found damaged")
            return total / (time.monotonic() - began) / 1e6

        rates = timed.interleaved(
            rounds,
            memory=lambda: _together(1, _of_memory),
            one=lambda: _together(1, of_a_file),
            all=lambda: _together(cores, of_a_file),
            checked=every_byte,
        )
    one, together, checked = rates["one"], rates["all"], rates["checked"]
    yield Row("sha256 of a block in memory, one core", rates["memory"], "MB/s", "itself", 1.0)
    yield Row("sha256 of a file, one core", one, "MB/s", "the block", one / rates["memory"])
    yield Row(f"sha256 of {cores} files at once", together, "MB/s", f"{cores} x one file", together / one / cores)
    yield Row("every byte checked", checked, "MB/s", f"{cores} x one file", checked / one / cores)
    yield Row("every byte checked", checked, "MB/s", "at once: what others leave of the cores", checked / together)
    yield from _stamp(rounds)


def _together(threads: int, hashed: Callable[[int], int]) -> float:
    """MB/s of all threads together."""
    began = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(hashed, range(threads)))
    return total / (time.monotonic() - began) / 1e6


def _of_memory(_: int) -> int:
    """A block that stays in the core's cache."""
    block, found = os.urandom(1 << 20), hashlib.sha256()
    for _round in range(_BLOCKS):
        found.update(block)
    return _BLOCKS * len(block)


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
