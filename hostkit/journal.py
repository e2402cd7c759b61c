"""The journal of one start of one unit: followed by invocation id, so a dead process's lines are never read as new."""

import json
import re
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hostkit import paths
from hostkit.systemd import Unit

# Lines of SGLang 0.5.23 that mark how far a start is; read in the captures of real starts.
STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"server_args="), "arguments read"),
    (re.compile(r"Init torch distributed begin|Init parallel begin"), "joining ranks"),
    (re.compile(r"Load weight begin"), "loading weights"),
    (re.compile(r"(?:loading|Loading).*shards?:\s*(?P<percent>\d+)%"), "loading weights"),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"KV Cache is allocated"), "KV cache allocated"),
    (re.compile(r"Capture .*(?:cuda )?graph.* begin"), "capturing graphs"),
    (re.compile(r"Capturing batches.*?(?P<percent>\d+)%"), "capturing graphs"),
    (re.compile(r"Capture .*(?:cuda )?graph.* end"), "graphs captured"),
    (re.compile(r"Application startup complete"), "warming up"),
    (re.compile(r"The server is fired up and ready to roll"), "fired up"),
)

# Lines after which no start of SGLang succeeds, though its main process may live on.
FATAL = re.compile(
    r"Capture cuda graph failed|OutOfMemoryError|Received sigquit|Watchdog timeout|Initialization failed"
    r"|unhandled system error|ninja: build stopped|\[Errno 9[89]\]|address already in use"
    r"|error while attempting to bind"
)
# The end of a Python traceback, which says best why a process ended; then any other word of trouble, but not what
# the engine says of its own going down.
_EXCEPTION = re.compile(r"^(?:\[[^]]*\]\s*)?[\w.]*(?:Error|Exception|Exit)\b:")
_TROUBLE = re.compile(r"\berror\b|FATAL|Killed|cannot|failed", re.IGNORECASE)
_GOING_DOWN = re.compile(r"Received sigquit|kill_process_tree|server_args=|Ignore import error")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Stage:
    """How far a start is; percent is of this stage."""

    name: str
    percent: float | None


class Journal:
    """Follows the lines of one invocation of a unit. Use as a context manager."""

    def __init__(self, invocation_id: str) -> None:
        self.lines: list[str] = []
        self._command = [
            "journalctl",
            f"--namespace={paths.JOURNAL_NAMESPACE}",
            "--follow",
            "--lines=all",
            "--output=json",
            "--all",
            "--quiet",
            f"_SYSTEMD_INVOCATION_ID={invocation_id}",
        ]

    def __enter__(self) -> "Journal":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join(timeout=5)

    def catch_up(self) -> None:
        """Read all of it once more: the last lines of a process that ended may still be on their way to the journal."""
        synced = ["journalctl", f"--namespace={paths.JOURNAL_NAMESPACE}", "--sync"]
        subprocess.run(synced, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20, check=False)
        whole = [word for word in self._command if word != "--follow"]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=60, check=False)
        lines = [one for entry in done.stdout.splitlines() for one in message_lines(json.loads(entry).get("MESSAGE"))]
        self.lines = max(self.lines, lines, key=len)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines += message_lines(json.loads(line).get("MESSAGE"))


def last_lines(count: int, *which: str) -> list[str]:
    """The last lines that journalctl has for the words `which`, as the processes wrote them."""
    command = ["journalctl", f"--namespace={paths.JOURNAL_NAMESPACE}", f"--lines={count}", "--output=json", "--all"]
    done = subprocess.run([*command, "--quiet", *which], capture_output=True, text=True, timeout=20, check=False)
    return [line for entry in done.stdout.splitlines() for line in message_lines(json.loads(entry).get("MESSAGE"))]


def reader(*words: str) -> list[str]:
    """The command that reads what the servers log together with what systemd says of them."""
    return ["journalctl", f"--namespace=+{paths.JOURNAL_NAMESPACE}", "--no-pager", "--output=short-iso", *words]


def current(units: Iterable[Unit]) -> list[str]:
    """Words for `reader`: the units' current or last invocations; all of a unit that has had none since the boot."""
    words: list[str] = []
    for unit in units:
        own = (f"_SYSTEMD_INVOCATION_ID={unit.invocation_id}", "+", f"INVOCATION_ID={unit.invocation_id}")
        never = (f"_SYSTEMD_UNIT={unit.name}", "+", f"UNIT={unit.name}")
        words += [*(["+"] if words else []), *(own if unit.invocation_id else never)]
    return words


def message_lines(message: Any) -> list[str]:
    """Text of a journal field, which is a list of bytes where it is not plain UTF-8; colours removed."""
    if isinstance(message, list):
        message = bytes(message).decode(errors="replace")
    text = _COLOUR.sub("", str(message or "")).replace("\r", "\n")
    return [line for line in text.splitlines() if line.strip()]


def stage_of(line: str) -> Stage | None:
    for pattern, name in STAGES:
        found = pattern.search(line)
        if found:
            percent = found.groupdict().get("percent")
            return Stage(name, float(percent) if percent else None)
    return None


def is_fatal(line: str) -> bool:
    """The line that echoes all arguments names many a thing without meaning it."""
    return "server_args=" not in line and FATAL.search(line) is not None


def cause(lines: Sequence[str]) -> str:
    """The line that says best why a process ended: its exception, else its last word of trouble, else its last."""
    said = [line.strip() for line in lines if line.strip() and not _GOING_DOWN.search(line)]
    for pattern in (_EXCEPTION, _TROUBLE):
        matching = [line for line in said if pattern.search(line)]
        if matching:
            return matching[-1]
    return said[-1] if said else "it logged nothing"
