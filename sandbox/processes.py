"""Signal a process only when it is surely ours: a process id from a file may belong to a stranger by now."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path


class Process:
    """A process found by id and by a mark in its environment, held by a descriptor that cannot be reused."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    @classmethod
    def find(cls, pid: int, mark: str) -> Process | None:
        """Return the process when it lives and its environment holds `mark` (NAME=VALUE), else None."""
        try:
            descriptor = os.pidfd_open(pid)
        except (ProcessLookupError, ValueError):
            return None
        # Looked at after opening: should the number be reused, the descriptor still means this process.
        if mark.encode() in _environment(pid):
            return cls(pid, descriptor)
        os.close(descriptor)
        return None

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that has just ended is no error."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def wait(self, limit_s: float) -> bool:
        """Wait until the process has ended; False when the limit (s) passes first."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(limit_s * 1000))

    def __del__(self) -> None:
        os.close(self._descriptor)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
