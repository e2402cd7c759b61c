"""Lines on standard error as the real engine writes them."""

from __future__ import annotations

import os
import sys
import time

_rank = ""


def name_rank(prefix: str) -> None:
    """Let this process's lines name its rank, as ` TP0` does; "" where there is only one."""
    global _rank
    _rank = prefix


def log(message: str) -> None:
    write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{_rank}] {message}\n")


def log_uvicorn(message: str, level: str = "INFO") -> None:
    log(f"{level + ':':<9} {message}")


def log_exception(error: str) -> None:
    """Log how a scheduler ends; the traceback's last frames come with the error."""
    frame = '  File "sglang/srt/managers/scheduler.py", line 6362, in run_scheduler_process'
    traceback = f"Traceback (most recent call last):\n{frame}\n    scheduler = Scheduler(\n{error}\n"
    log(f"Scheduler hit an exception: {traceback}")


def progress(label: str, done: int, total: int, *, bar: bool = True) -> None:
    """Draw one state of a progress bar over the one before, as tqdm does: the line ends with the last."""
    percent = 100 * done // total
    drawn = f"|{'█' * (percent // 10):10}|" if bar else " Completed |"
    end = "\n" if done == total else ""
    write(f"\r{label}: {percent:3d}%{drawn} {done}/{total} [00:00<00:00, 43.15it/s]{end}")


def write(text: str) -> None:
    """One write for the whole text, or lines of several processes would mix."""
    sys.stderr.flush()
    os.write(2, text.encode())
