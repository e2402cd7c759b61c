"""How the server ends: drained after SIGTERM with status 0, or all at once by SIGKILL when a child is gone.

`systemctl stop` of a unit with KillMode=control-group signals the children too: a scheduler has no handler, dies,
and its death is taken for a crash. So the unit ends by SIGKILL, and what still ran is cut.
"""

from __future__ import annotations

import os
import signal
import time

from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.log import log, log_uvicorn
from sandbox.simulated.engine.manager import UNHEALTHY, Manager
from sandbox.simulated.engine.processes import Tree


def child_failed_while_loading(tree: Tree) -> None:
    """Handle SIGQUIT before the port is open."""
    log("Received sigquit from a child process. It usually means the child failed.")
    tree.kill(include_parent=True)


class Ending:
    """Waits for the end of a server that listens."""

    def __init__(self, tree: Tree, manager: Manager, faults: Faults) -> None:
        self._tree, self._manager, self._faults = tree, manager, faults

    def handle_signals(self) -> None:
        signal.signal(signal.SIGQUIT, self._child_failed)
        if not ("orphan-scheduler" in self._faults or "ignore-sigterm" in self._faults):
            signal.signal(signal.SIGTERM, self._begin_to_stop)

    def wait(self, poll_s: float) -> int:
        """Watch the children until SIGTERM and drain. Returns the status of the process."""
        while not self._manager.stopping:
            self._tree.check()
            time.sleep(poll_s)
        self._drain()
        self._tree.kill(include_parent=False)
        log_uvicorn("Shutting down")
        log_uvicorn("Waiting for application shutdown.")
        log_uvicorn("Application shutdown complete.")
        log_uvicorn(f"Finished server process [{os.getpid()}]")
        self._tree.kill(include_parent=False)
        return 0

    def _begin_to_stop(self, *_: object) -> None:
        log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._manager.stopping = True

    def _drain(self) -> None:
        """Let running requests end; a server whose last /health failed does not wait for them.

        Children are looked at before requests are counted, as in the real engine nearly always: its watchdog looks
        every second, its drain every five.
        """
        while self._manager.status != UNHEALTHY:
            time.sleep(self._faults.pace.drain_s)
            self._tree.check()
            running = remaining_rids = self._manager.running
            log(
                f"Gracefully exiting... Remaining number of requests {len(running)}. "
                f"Remaining requests {remaining_rids=}."
            )
            if not running:
                return
        log("Signal SIGTERM received while health check failed. Force exiting.")

    def _child_failed(self, *_: object) -> None:
        log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        time.sleep(self._faults.pace.crash_s)
        if not self._tree.has_scheduler():
            log("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self._tree.kill(include_parent=True)
