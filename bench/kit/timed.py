"""Runs a command for its wall time, and refuses a time that is not what it seems."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 300.0


class Failed(Exception):
    """A command failed, took too long, or changed something where nothing was to change."""


@dataclass(frozen=True)
class Timed:
    """A command that ended with 0. seconds is its wall time."""

    seconds: float
    stdout: str
    stderr: str


def command(*argv: str, limit_s: float = LIMIT_S, environment: Mapping[str, str] | None = None) -> Timed:
    """Run it in the project's folder, without a terminal. Raises Failed with the end of its output."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            argv,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=environment,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"`{' '.join(argv)}` took longer than {limit_s:.0f} s") from None
    except subprocess.CalledProcessError as error:
        said = "\n".join((error.stdout + error.stderr).splitlines()[-20:])
        raise Failed(f"`{' '.join(argv)}` ended with {error.returncode}:\n{said}") from None
    return Timed(time.monotonic() - began, done.stdout, done.stderr)


def pyinfra(*words: str, limit_s: float = LIMIT_S) -> Timed:
    """`pyinfra inventory.py WORDS`, with the pyinfra of this Python."""
    return command(str(Path(sys.prefix) / "bin" / "pyinfra"), "inventory.py", *words, limit_s=limit_s)


def for_hosts(names: Iterable[str]) -> list[str]:
    """Options of an unattended pyinfra run for these hosts alone."""
    return ["-y", "--json", *(word for name in names for word in ("--limit", name))]


def unchanged(run: Timed, hosts: int) -> Timed:
    """The same run. Raises Failed unless pyinfra's report says that it reached every host and changed nothing."""
    results = json.loads(run.stdout)["results"]
    totals = results["totals"]
    everywhere = all(len(one["no_change"]) == hosts for one in results["operations"])
    if totals["success"] or totals["error"] or not results["operations"] or not everywhere:
        raise Failed(f"the run was to change nothing on {hosts} hosts, and its totals are {totals}:\n{run.stderr}")
    return run


def interleaved(rounds: int, **contenders: Callable[[], float]) -> dict[str, float]:
    """Median of what each contender returns; they take turns, so that a busy minute falls on all of them."""
    taken = [{name: contender() for name, contender in contenders.items()} for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in taken) for name in contenders}
