"""The process tree: a scheduler for each rank and the detokenizer, children of the process that serves HTTP."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from socket import create_server, socket
from typing import Any, NoReturn

from sandbox.gpu.claim import addresses, claim
from sandbox.simulated.engine import scheduler
from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.log import log, name_rank

CLAIM = "SANDBOX_GPU_CLAIM"
PR_SET_PDEATHSIG = 1
# From a fork, and not from a fresh Python as in the real engine, they are there in milliseconds.
FORK = get_context("fork")

_held: list[socket] = []  # closing a socket would give the memory back


class Tree:
    """The children, and how they end: the death of one is the death of all."""

    def __init__(self, arguments: Mapping[str, Any], faults: Faults) -> None:
        self._children: dict[str, ForkProcess] = {}
        self.to_scheduler: Connection
        to_detokenizer, detokenizer_end = FORK.Pipe()
        self.from_detokenizer, main_end = FORK.Pipe(duplex=False)
        ranks = int(arguments["tp_size"]) * int(arguments["pp_size"])
        self._ready: list[Connection] = []
        for rank in range(ranks):
            main_side, inbox = FORK.Pipe()
            self._ready.append(main_side)
            self._add(f"scheduler_{rank}", _scheduler, arguments, faults, rank, ranks, inbox, to_detokenizer)
        self.to_scheduler = self._ready[0]
        self._add("detokenizer", _detokenizer, detokenizer_end, main_end)

    def _add(self, name: str, target: Callable[..., object], *arguments: object) -> None:
        self._children[name] = FORK.Process(target=target, args=arguments, name=name, daemon=True)

    def start(self) -> None:
        for process in self._children.values():
            process.start()

    def wait_until_ready(self) -> None:
        """Wait until every rank has loaded. Raises RuntimeError for one that dies without a word."""
        for rank, pipe in enumerate(self._ready):
            while not pipe.poll(0.05):
                process = self._children[f"scheduler_{rank}"]
                if not process.is_alive():
                    raise RuntimeError(
                        f"Rank {rank} scheduler died during initialization (exit code: {process.exitcode}). "
                        "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. "
                        "Run `dmesg -T | grep -i oom` to check."
                    )
            pipe.recv()

    def check(self) -> None:
        """Raise SIGQUIT in this process when a child is gone, as the real watchdog does."""
        for name, process in self._children.items():
            if not process.is_alive():
                log(
                    f"Subprocess {name} (pid={process.pid}) crashed with exit code {process.exitcode}. "
                    "Triggering SIGQUIT for cleanup..."
                )
                os.kill(os.getpid(), signal.SIGQUIT)
                return

    def has_scheduler(self) -> bool:
        return any(process.is_alive() for name, process in self._children.items() if name.startswith("scheduler"))

    def kill(self, include_parent: bool) -> None:
        """End the children by SIGKILL, then this process too where it is included."""
        pid = os.getpid()
        log(f"kill_process_tree called: parent_pid={pid}, include_parent={include_parent}, pid={pid}")
        for process in self._children.values():
            if process.pid:  # None: one that is still to be started
                process.kill()
        if include_parent:
            os.kill(pid, signal.SIGKILL)
        for process in self._children.values():
            process.join()


def _scheduler(
    arguments: Mapping[str, Any], faults: Faults, rank: int, ranks: int, inbox: Connection, outbox: Connection
) -> None:
    prefix = f" TP{rank}" if ranks > 1 else ""
    _become(f"sglang::scheduler{prefix.replace(' ', '_')}", survives="orphan-scheduler" in faults)
    name_rank(prefix)
    if wanted := os.environ.get(CLAIM):
        _hold(wanted, rank, ranks)
    if rank == 0 and arguments["nccl_port"]:  # where the ranks meet, on all addresses as in the real engine
        _held.append(create_server(("", arguments["nccl_port"])))
    scheduler.run(arguments, faults, rank, inbox, outbox)


def _hold(wanted: str, rank: int, ranks: int) -> None:
    """Claim this rank's share of "<pci>,<pci>/<MiB>": memory of the GPU stand-in, MiB on each card."""
    selectors, _, mib = wanted.rpartition("/")
    if mine := addresses(selectors.split(","))[rank::ranks]:
        _held.append(claim(mine, int(mib)))


def _detokenizer(inbox: Connection, outbox: Connection) -> NoReturn:
    _become("sglang::detokenizer")
    while True:
        outbox.send(inbox.recv())


def _become(title: str, survives: bool = False) -> None:
    """Take the title, and die with the parent unless the fault is to outlive it."""
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if survives:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        importlib.import_module("setproctitle").setproctitle(title)
    except ModuleNotFoundError:  # then `ps -o comm` and `pgrep` know it at least
        Path("/proc/self/comm").write_text(title[:15])
