"""What a run costs that has nothing to change: wall time beside the cheapest thing pyinfra can do on a host."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.rows import Row
from sandbox.fleet import Sandbox

ROOT = Path(__file__).resolve().parent.parent
HOST, ROUNDS = "bench", 7


def measure() -> list[Row]:
    """Interleaved rounds in one run; medians in s."""
    sandbox = Sandbox()
    [host] = sandbox.up(HOST)
    try:
        _pyinfra("deploy.py")
        rounds = [(_pyinfra("deploy.py"), _pyinfra("exec", "--", "true")) for _ in range(ROUNDS)]
    finally:
        sandbox.down(host.name)
    noop, floor = (statistics.median(times) for times in zip(*rounds, strict=True))
    return [
        Row("noop deploy", noop, "s", "pyinfra exec -- true", noop / floor),
        Row("pyinfra exec -- true", floor, "s", "itself", 1.0),
    ]


def _pyinfra(*words: str) -> float:
    options = ["-y", "--limit", HOST] if words[0] == "deploy.py" else ["--limit", HOST]
    command = [f"{sys.prefix}/bin/pyinfra", *options, "inventory.py", *words]
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.monotonic() - began
