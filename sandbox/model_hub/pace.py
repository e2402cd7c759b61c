"""The rate of a link that all connections share."""

from __future__ import annotations

import threading
import time

# As much as an idle link lets through at once (s of its rate): sleeps shorter than this are not worth their wake-up.
_SLACK_S = 0.005


class Pace:
    """Lets bytes through at a rate (bytes/s); 0 is no limit."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait(self, count: int) -> None:
        """Return when that many bytes may go."""
        if not self.rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - _SLACK_S) + count / self.rate
            pause = self._free_at - now
        if pause > _SLACK_S:
            time.sleep(pause)
