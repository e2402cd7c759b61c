"""Ends processes that are named by pid and start time: TERM, time to finish, KILL. A reused pid is never hit."""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from hostkit import gates, processes

# A killed process that holds GPU memory gives it back before it is gone.
_KILLED_WITHIN_S = 30.0


def end(wanted: Iterable[tuple[int, int]], within_s: float) -> None:
    """End the processes (pid, start ticks) and what they start meanwhile. Raises gates.NotMet for one that stays."""
    held: dict[int, int] = {}
    try:
        _hold(held, wanted)
        _signal(held, signal.SIGTERM)
        _wait(held, within_s)
        _hold(held, _below(held))
        _signal(held, signal.SIGKILL)
        _wait(held, _KILLED_WITHIN_S)
        if held:
            raise gates.NotMet(
                f"pid {', '.join(map(str, sorted(held)))} did not end {_KILLED_WITHIN_S:.0f} s after KILL"
            )
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def wait_until_gone(wanted: Iterable[tuple[int, int]], within_s: float) -> None:
    """Raises gates.NotMet when one of the processes still runs after within_s seconds."""
    held: dict[int, int] = {}
    try:
        _hold(held, wanted)
        _wait(held, within_s)
        if held:
            raise gates.NotMet(f"pid {', '.join(map(str, sorted(held)))} still runs")
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _hold(held: dict[int, int], wanted: Iterable[tuple[int, int]]) -> None:
    """A descriptor for each process that still is the one meant; checked once held, so that it stays that one."""
    for pid, ticks in wanted:
        if pid in held:
            continue
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            if processes.ticks_or_none(pid) == ticks:
                held[pid] = descriptor
            else:
                os.close(descriptor)


def _below(held: Iterable[int]) -> list[tuple[int, int]]:
    """What the processes have started since."""
    parents = processes.parents() if held else {}
    below = [pid for pid in parents if not set(processes.ancestors(pid)).isdisjoint(held)]
    return [(pid, ticks) for pid in below if (ticks := processes.ticks_or_none(pid)) is not None]


def _signal(held: dict[int, int], number: signal.Signals) -> None:
    for descriptor in held.values():
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)


def _wait(held: dict[int, int], within_s: float) -> None:
    """Wait for the processes, and let go of those that end."""
    deadline = time.monotonic() + within_s
    while held and (left := deadline - time.monotonic()) > 0:
        poll = select.poll()
        for descriptor in held.values():
            poll.register(descriptor, select.POLLIN)
        over = {descriptor for descriptor, _ in poll.poll(left * 1000)}
        for pid in [pid for pid, descriptor in held.items() if descriptor in over]:
            os.close(held.pop(pid))
