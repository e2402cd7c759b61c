"""Follows a job on the host: starts or joins it, shows its events, and says how it ended.

The job does not depend on this connection: it goes on when the connection drops, and the next run joins it.
"""

import getpass
import io
import json
import shlex
import socket
import sys
import time
from typing import Any

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State
from rich.console import Console
from rich.progress_bar import ProgressBar

from serving.schemas import Event, Result

_WAIT_S = 5
_REPEAT_S, _WATCHED_S = 15.0, 3.0
_BAR_WIDTH = 24
MEANING = {
    1: "the job failed",
    2: "refused before any change",
    3: "rolled back",
    4: "stopped and not serving",
    5: "another job changes this host",
    6: "serving but not accepted",
}


class FollowJob(PyinfraCommand):
    """A command that ends when the job on the host has ended; it fails when the job's code is not 0."""

    def __init__(self, hostkit: str, kind: str, request: dict[str, Any]) -> None:
        super().__init__()
        self.hostkit, self.kind, self.request = hostkit, kind, request

    def __repr__(self) -> str:
        return f"FollowJob({self.kind})"

    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        run = _Remote(host, connector_arguments, self.hostkit)
        started, output = run("start-job", self.kind, json.dumps(self.request), "--by", who())
        if not started:
            _say(host, f"could not start: {' '.join(output)}")
            return False
        result = _show_until_done(run, host, self.kind, output[-1])
        _show_result(host, result)
        return result.code == 0


class _Remote:
    """Runs hostkit on the host with the operation's own privileges."""

    def __init__(self, host: Host, connector_arguments: Any, hostkit: str) -> None:
        self._host, self._arguments, self._hostkit = host, connector_arguments, hostkit

    def __call__(self, *words: str) -> tuple[bool, list[str]]:
        ok, output = self._host.run_shell_command(shlex.join([self._hostkit, *words]), **self._arguments)
        return ok, output.stdout_lines if ok else output.stderr_lines


def who() -> str:
    """Whose work it is, for another operator who meets it."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _show_until_done(run: _Remote, host: Host, kind: str, job: str) -> Result:
    after, shown = 0, _Shown(host)
    while True:
        ok, lines = run("follow-job", kind, job, "--after", str(after), "--wait", str(_WAIT_S))
        if not ok:
            raise OSError(f"the job goes on, but cannot be followed: {' '.join(lines)}; run again to join it")
        update = json.loads(lines[-1])
        for event in update["events"]:
            shown.tell(Event.model_validate(event))
        after = update["next"]
        if update["result"] is not None:
            return Result.model_validate(update["result"])


class _Shown:
    """Prints what is new, and the same stage again only after a while."""

    def __init__(self, host: Host) -> None:
        self._host, self._last, self._when = host, "", 0.0

    def tell(self, event: Event) -> None:
        what = f"{event.unit} {event.stage} {event.message}" if event.percent is None else event.stage
        if what == self._last and time.monotonic() - self._when < (_WATCHED_S if _is_watched() else _REPEAT_S):
            return
        self._last, self._when = what, time.monotonic()
        bar = f" {_bar(event.percent)}" if event.percent is not None and _is_watched() else ""
        percent = "" if event.percent is None else f" {event.percent:.0f} %"
        _say(self._host, f"{event.elapsed_s:6.1f} s  {event.stage}{bar}{percent}: {event.message}{event.left}")


def _is_watched() -> bool:
    return sys.stderr.isatty()


def _bar(percent: float) -> str:
    """A line each few seconds and not one that moves: pyinfra draws on the last line of the terminal, too."""
    console = Console(file=io.StringIO(), force_terminal=True, width=_BAR_WIDTH + 1, color_system="standard")
    with console.capture() as drawn:
        console.print(ProgressBar(total=100, completed=percent, width=_BAR_WIDTH), end="")
    return drawn.get()


def _show_result(host: Host, result: Result) -> None:
    if result.code == 0:
        _say(host, result.message)
        return
    for line in result.excerpt:
        _say(host, f"  | {line}")
    failed = [verdict for verdict in result.verdicts if not verdict.ok]
    for verdict in failed:
        _say(host, f"failed step: {verdict.step}: {verdict.evidence}")
    _say(host, f"{MEANING[result.code]} (code {result.code}): {result.message}")


def _say(host: Host, line: str) -> None:
    host.log(line)
