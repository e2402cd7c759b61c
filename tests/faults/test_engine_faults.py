"""Every fault of an engine, on a first deploy and on a switch: what is seen, what serves, what a second run does."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.machine import Host
from tests.faults import simulated
from tests.faults.simulated import code, deploy, fault, serving, two_servers

pytestmark = pytest.mark.host

BACK, STOPPED, NOT_ACCEPTED = 3, 4, 6


@pytest.fixture
def old(either: Host) -> Host:
    return either


@dataclass(frozen=True)
class Fault:
    """`sees`: part of what the run says. ends: hostkit's code on a switch (on a first deploy 3 becomes 4)."""

    engine: str
    sees: str
    ends: int = BACK
    words: tuple[str, ...] = ()


FULL = ("--data", "gates=full")
FAULTS = {
    "exits at once": Fault("exit:3", "ended while starting (exit status 3)"),
    "stuck while loading": Fault("stuck-loading", "stuck: no log line, no CPU and no disk activity for 6 s"),
    "dies while loading": Fault("die-loading", "torch.OutOfMemoryError: CUDA out of memory"),
    "out of memory at capture": Fault("die-capturing", "Capture cuda graph failed"),
    "dies after it was ready": Fault("die-after-ready:0.5", "failed step: sglang-server: "),
    "dies at the 2nd request": Fault("die-at-request:2", "failed step: sglang-server: "),
    "wedges after 1 request": Fault("wedge-after:1", "identifiers wrong"),
    "health true, no tokens": Fault("no-tokens", "failed step: sglang-server: known answer"),
    "empty answers": Fault("empty-answers", "was answered '' instead of '4'"),
    "no tokens, ignores TERM": Fault("no-tokens,ignore-sigterm", "failed step: sglang-server: known answer"),
    "no tokens, orphans its scheduler": Fault("no-tokens,orphan-scheduler", "failed step: sglang-server: known answer"),
    "garbage": Fault("garbage", "failed step: sglang-server: known answer"),
    "one repeated token": Fault("repeat-token", "failed step: sglang-server: known answer"),
    "NaN": Fault("nan", "was answered '!!!!"),
    "wrong under concurrency": Fault("corrupt-concurrent", "identifiers wrong"),
    "wrong model name": Fault("wrong-model:other", "lists ['other'], not tiny"),
    "arguments not in force": Fault(
        "wrong-argument:decode_log_interval=99", "decode_log_interval is 99, not 10", NOT_ACCEPTED
    ),
    "no CUDA graphs": Fault("no-cuda-graph", "decoded without a CUDA graph at", NOT_ACCEPTED, FULL),
    "slow": Fault("slow:50", "slower than the profile's floor", NOT_ACCEPTED, FULL),
    "slow load": Fault("slow-load:9", "loading weights", 0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_on_a_first_deploy(untouched: Host, project: Path, matrix: Any, name: str) -> None:
    case = FAULTS[name]
    fault(untouched, case.engine)
    run = deploy(untouched, project, "new", *case.words)
    ends = STOPPED if case.ends == BACK else case.ends
    assert (code(run), bool(run.lines_with(case.sees))) == (ends, True), run.text
    assert serving(untouched) == (None if ends == STOPPED else "new")
    after = "stopped" if ends == STOPPED else "it serves"
    matrix(name, "first deploy", f"code {ends}: {case.sees}", after, converges(untouched, project))


@pytest.mark.parametrize("name", FAULTS)
def test_on_a_switch(old: Host, project: Path, matrix: Any, name: str) -> None:
    case = FAULTS[name]
    fault(old, case.engine)
    run = deploy(old, project, "new", *case.words)
    assert (code(run), bool(run.lines_with(case.sees))) == (case.ends, True), run.text
    assert serving(old) == ("old" if case.ends == BACK else "new")
    after = "the old one serves again" if case.ends == BACK else "the new one serves"
    matrix(name, "switch", f"code {case.ends}: {case.sees}", after, converges(old, project))


def converges(host: Host, project: Path) -> str:
    """A plain second run, the fault gone, ends with the new release serving; never were there two servers."""
    assert two_servers(host) == ""
    simulated.without_faults(host)
    if serving(host) == "new":  # kept with its fault: it is the process that has it
        host.run(["systemctl", "restart", "sglang-server"])
    run = deploy(host, project)
    assert (run.code, serving(host)) == (0, "new"), run.text
    assert two_servers(host) == ""
    return f"serves the new one, changed {run.changed}"
