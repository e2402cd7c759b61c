"""Conditions that must hold before the next step. Each raises NotMet with what an operator should do."""

import json
import subprocess
import time
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

from hostkit import compiler, gpus, paths, processes, stamps

# What an idle card may show as used: driver and ECC bookkeeping (an idle H200 showed 0 MiB; display-less
# workstation cards a few hundred).
IDLE_MIB = 1024
_STABLE_S = 1.0
Leaving = Container[tuple[int, int]]


class NotMet(Exception):
    """A condition does not hold."""


class StillHeld(NotMet):
    """A process is there that must be gone: no other may be started beside it."""


def argv_accepted(release: dict[str, Any], unit: dict[str, Any]) -> str:
    """The installed engine's own parser takes the unit's argv."""
    python, _, _, *words = unit["argv"]
    arguments = _without_config_file(words)
    me = str(Path(__file__).resolve().parents[1])
    engine = unit.get("engine", release["engine"])  # a release of an earlier playbook has one for all
    request = json.dumps({"package": engine["package"], "argv": arguments})
    done = subprocess.run(
        [python, me, "engine-parser", "check"],
        input=request,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**unit["environment"], "HOME": release["cache"]},
        user=paths.SERVICE_USER,
        group=paths.SERVICE_USER,
    )
    try:
        verdict = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise NotMet(f"the engine's parser did not run: {(done.stderr or done.stdout)[-600:]}") from None
    if not verdict["ok"]:
        raise NotMet(f"the engine refuses its arguments: {verdict['message']}")
    return f"{len(arguments)} words taken by {engine['package']} {engine['version']}"


def compiler_works(release: dict[str, Any], unit: dict[str, Any]) -> str:
    """Kernels can be compiled with what the unit's environment names; checked anew when a compiler changed."""
    if "CUDA_HOME" not in unit["environment"] or not unit["gpus"]:
        return "no kernels to compile"
    try:
        return compiler.check_once(unit["environment"], Path(release["cache"]))
    except compiler.CannotCompile as problem:
        raise NotMet(str(problem)) from None


def _without_config_file(words: list[str]) -> list[str]:
    """The credential behind `--config` exists for a running unit only."""
    at = words.index("--config") if "--config" in words else len(words)
    return [*words[:at], *words[at + 2 :]]


def checkpoint_verified(release: dict[str, Any]) -> str:
    problem = stamps.is_verified(Path(release["checkpoint"]["folder"]))
    if problem:
        raise NotMet(problem)
    return f"{release['checkpoint']['repository']}@{release['checkpoint']['revision']}"


def no_foreign_holder(cards: Iterable[str], ours: Iterable[str], leaving: Leaving = ()) -> str:
    """Nothing outside of the units `ours` holds memory of the cards (PCI addresses), seen or unseen.

    What is about to be evicted, `leaving` as (pid, start ticks), may.
    """
    cards, ours = set(cards), set(ours)
    own_mib = dict.fromkeys(cards, 0)
    for use, process in gpus.uses_with_processes():
        if use.pci in cards and not _may_stay(process, ours, leaving):
            raise NotMet(f"GPU {use.pci}: {use.used_mib} MiB held by {describe(process)}; stop it first")
        if use.pci in cards:
            own_mib[use.pci] += use.used_mib
    for gpu in gpus.gpus():
        rest = gpu.memory_used_mib - own_mib.get(gpu.pci, 0)
        if gpu.pci in cards and rest > IDLE_MIB:
            raise NotMet(f"GPU {gpu.pci}: {rest} MiB in use by no process that nvidia-smi shows; free it first")
    return f"{len(cards)} GPUs held by nobody else"


def _may_stay(process: processes.Process | None, ours: Container[str | None], leaving: Leaving) -> bool:
    return process is not None and (process.unit in ours or (process.pid, process.start_ticks) in leaving)


def ports_free(ports: Iterable[int], ours: Iterable[str], leaving: Leaving = ()) -> str:
    """Nobody outside of the units `ours` listens on one of the ports, or it is about to be evicted."""
    ports, ours = sorted(set(ports)), set(ours)
    for address, number, pid in processes.listeners():
        if number in ports:
            process = processes.read(pid) if pid else None
            if not _may_stay(process, ours, leaving):
                raise NotMet(f"port {number} is in use on {address} by {describe(process)}; stop it first")
    return f"port{'s' if len(ports) > 1 else ''} {', '.join(map(str, ports))} free"


def soon(condition: Callable[[], str], within_s: float) -> str:
    """The condition's evidence as soon as it holds. Raises its last NotMet when it does not within the time."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return condition()
        except NotMet:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.25)


def gpus_free(cards: Iterable[str], within_s: float) -> str:
    """The cards hold no process and no memory, and stay so. Utilisation says nothing and is not asked."""
    cards = set(cards)
    deadline = time.monotonic() + within_s
    free_since: float | None = None
    while True:
        problem = _not_free(cards)
        now = time.monotonic()
        free_since = None if problem else free_since or now
        if free_since is not None and now - free_since >= _STABLE_S:
            return f"{len(cards)} GPUs free: no process, memory idle"
        if problem and now >= deadline:
            raise type(problem)(f"after {within_s:.0f} s {problem}")
        time.sleep(0.25)


def _not_free(cards: set[str]) -> NotMet | None:
    for use, process in gpus.uses_with_processes():
        if use.pci in cards:
            return StillHeld(f"GPU {use.pci}: {use.used_mib} MiB still held by {describe(process)}")
    for gpu in gpus.gpus():
        if gpu.pci in cards and gpu.memory_used_mib > IDLE_MIB:
            return NotMet(f"GPU {gpu.pci}: {gpu.memory_used_mib} MiB in use by no process that nvidia-smi shows")
    return None


def describe(process: processes.Process | None) -> str:
    if process is None:
        return "a process that cannot be seen"
    owner = f"{process.user}, {process.age_s} s old, {process.unit or 'no unit'}"
    return f"pid {process.pid} ({owner}): {process.command[:120]}"
