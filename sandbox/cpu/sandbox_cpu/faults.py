"""Let the server die while it starts, for tests of what the playbook makes of it.

SANDBOX_ENGINE_FAULT=die-loading  out of GPU memory where the scheduler loads the weights. All that follows
                                  (log, signals, exit by SIGKILL) is SGLang's own doing
SANDBOX_ENGINE_FAULT=die-at:20    20 s after its start the main process logs the same and exits with 1
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

VARIABLE = "SANDBOX_ENGINE_FAULT"
LOADING = "Load weight begin"  # what the scheduler logs just before
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB of which "
    "1.31 GiB is free. Process {pid} has 93.65 GiB memory in use."
)
TRACEBACK = """\
[{time}] Scheduler hit an exception: Traceback (most recent call last):
  File "sglang/srt/managers/scheduler.py", line 6362, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args)
torch.OutOfMemoryError: {error}
"""


def install() -> None:
    """Prepare the fault that the variable names. Raises ValueError for one that is not known."""
    fault, _, seconds = os.environ.get(VARIABLE, "").partition(":")
    if fault == "die-loading":
        _die_when_loading()
    elif fault == "die-at":
        if _is_main_process():
            _start_timer(float(seconds))
    elif fault:
        raise ValueError(f"{VARIABLE}={fault}: die-loading or die-at:SECONDS")


def _die_when_loading() -> None:
    # A record factory survives the server's own set-up of logging, and what it raises reaches the caller.
    make_record = logging.getLogRecordFactory()

    def make_record_or_die(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        if str(record.msg).startswith(LOADING):
            raise sys.modules["torch"].OutOfMemoryError(_out_of_memory())
        return record

    logging.setLogRecordFactory(make_record_or_die)


def _is_main_process() -> bool:
    """Tell the server from the processes that it spawns, which have `-c` in place of its name."""
    return "sglang.launch_server" in sys.orig_argv or "serve" in sys.orig_argv[:3]


def _start_timer(seconds: float) -> None:
    timer = threading.Timer(seconds, _die)
    timer.daemon = True
    timer.start()


def _die() -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(TRACEBACK.format(time=now, error=_out_of_memory()), file=sys.stderr, flush=True)
    os._exit(1)  # from a thread, sys.exit() would end that thread only


def _out_of_memory() -> str:
    return OUT_OF_MEMORY.format(pid=os.getpid())
