"""What is done to the host, in this order. Each returns what was seen, and whether that is what it should be."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.gpu_host.asked import LongAnswer, healthy, seconds_until_healthy
from sandbox.gpu_host.machine import GpuHost
from sandbox.gpu_host.project import Project, Run

UNIT = "sglang-server.service"
HOLDER = "somebody-else.service"
HOLDER_MIB = 30 << 10
ENDS_WITHIN_S = 100


@dataclass
class Bench:
    """What the scenarios work on. `left` tells the seconds that the whole run may still take."""

    host: GpuHost
    project: Project
    out: Path
    stand_in: bool
    left: Callable[[], float]


@dataclass(frozen=True)
class Seen:
    """ok: it was as it should be."""

    ok: bool
    facts: dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """`needs_s` is about what it takes; with less time left it is not begun."""

    name: str
    needs_s: float
    play: Callable[[Bench], Seen]


def _deploy(bench: Bench, log: str, *words: str, limit_s: float) -> Run:
    run = bench.project.deploy(*words, limit_s=max(10.0, min(limit_s, bench.left() - 15)))
    (bench.out / f"{log}.log").write_text(run.log)
    return run


def _facts(bench: Bench, run: Run) -> dict[str, Any]:
    return {
        "code": run.code,
        "changed": run.changed,
        "seconds": run.seconds,
        "unit": _unit(bench, "ActiveState", "MainPID", "NRestarts", "Result", "MemoryPeak"),
        "last_lines": run.log.splitlines()[-12:],
    }


def _unit(bench: Bench, *properties: str) -> dict[str, str]:
    shown = bench.host.run(["systemctl", "show", f"--property={','.join(properties)}", UNIT]).stdout
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def first(bench: Bench) -> Seen:
    """From nothing to a server that is proven to serve: all steps of the ladder, and a second start."""
    bench.project.serve("graphs")
    run = _deploy(bench, "first", "--data", "gates=full", limit_s=420)
    return Seen(run.code == 0, _facts(bench, run))


def again(bench: Bench) -> Seen:
    """The same once more: no change, one question."""
    before = _unit(bench, "MainPID")
    run = _deploy(bench, "again", limit_s=60)
    same = _unit(bench, "MainPID") == before
    return Seen(run.code == 0 and run.changed == 0 and same, {**_facts(bench, run), "same_process": same})


def foreign(bench: Bench) -> Seen:
    """Somebody else's process holds memory of the GPU: the switch is refused before any change, and names it."""
    before = _unit(bench, "MainPID")
    held = _hold_memory(bench)
    bench.project.serve("eager")
    run = _deploy(bench, "foreign", limit_s=60)
    bench.host.run(["systemctl", "stop", HOLDER])
    bench.project.serve("graphs")
    lines = run.lines_with("MiB held by")
    same = _unit(bench, "MainPID") == before
    refused = run.code != 0 and bool(lines) and same
    return Seen(refused, {**_facts(bench, run), "holder": held, "named": lines, "same_process": same})


def switch(bench: Bench) -> Seen:
    """One line changed: another profile, without CUDA graphs."""
    bench.project.serve("eager")
    gates = "full" if bench.left() > 240 else "quick"
    run = _deploy(bench, "switch", "--data", f"gates={gates}", limit_s=260)
    return Seen(run.code == 0, {**_facts(bench, run), "gates": gates})


def back(bench: Bench) -> Seen:
    """The line changed back: a release that was found good before needs the quick proof only."""
    bench.project.serve("graphs")
    run = _deploy(bench, "back", limit_s=200)
    return Seen(run.code == 0, _facts(bench, run))


def dies(bench: Bench) -> Seen:
    """A profile that runs out of GPU memory while it starts: what served before serves again."""
    bench.project.serve("dies")
    run = _deploy(bench, "dies", limit_s=240)
    bench.project.serve("graphs")
    lines = run.lines_with("(code 3)")
    serves = healthy()
    return Seen(run.code != 0 and bool(lines) and serves, {**_facts(bench, run), "said": lines, "serves": serves})


def killed(bench: Bench) -> Seen:
    """The scheduler is killed: how long the unit takes to end, and until it serves again."""
    pids = bench.host.pids(UNIT)
    scheduler = next((pid for pid, command in pids.items() if "sglang::scheduler" in command), None)
    if scheduler is None:
        return Seen(False, {"pids": pids})
    main, began = _unit(bench, "MainPID")["MainPID"], time.monotonic()
    os.kill(scheduler, signal.SIGKILL)
    ended = _until(lambda: _unit(bench, "MainPID")["MainPID"] != main, 60)
    again_after = seconds_until_healthy(min(ENDS_WITHIN_S + 80, bench.left() - 20))
    after = round(time.monotonic() - began, 1)
    facts = {"main_ended_after_s": ended, "serves_after_s": after if again_after is not None else None}
    return Seen(again_after is not None, {**facts, "unit": _unit(bench, "ActiveState", "NRestarts", "Result")})


def captured(bench: Bench) -> Seen:
    """`sglang-box capture` of the running server."""
    began = time.monotonic()
    done = bench.host.run(["sglang-box", "capture", "--reason", "gpu host run"], limit_s=60)
    facts = {"code": done.returncode, "seconds": round(time.monotonic() - began, 1), "said": done.stdout + done.stderr}
    return Seen(done.returncode == 0, facts)


def drained(bench: Bench) -> Seen:
    """The unit is stopped while a long answer is under way: the client gets all of it."""
    answer = LongAnswer(400 if bench.stand_in else 1800)
    answer.start()
    answer.under_way.wait(30)
    began = time.monotonic()
    bench.host.run(["systemctl", "stop", UNIT], limit_s=ENDS_WITHIN_S)
    stopped = round(time.monotonic() - began, 1)
    answer.join(30)
    unit = _unit(bench, "ActiveState", "Result", "ExecMainStatus")
    facts = {"stopped_after_s": stopped, "stream": answer.stream.as_json(), "unit": unit}
    return Seen(answer.stream.whole and unit["ActiveState"] == "inactive", facts)


def started(bench: Bench) -> Seen:
    """The console brings back what was stopped."""
    began = time.monotonic()
    done = bench.host.run(["sglang-box", "start"], limit_s=max(10.0, min(200.0, bench.left() - 20)))
    facts = {"code": done.returncode, "seconds": round(time.monotonic() - began, 1), "said": done.stdout[-2000:]}
    return Seen(done.returncode == 0, {**facts, "problem": done.stderr[-2000:]})


SCENARIOS = (
    Scenario("first", 120, first),
    Scenario("again", 10, again),
    Scenario("foreign", 25, foreign),
    Scenario("switch", 60, switch),
    Scenario("back", 50, back),
    Scenario("dies", 90, dies),
    Scenario("killed", 90, killed),
    Scenario("captured", 25, captured),
    Scenario("drained", 20, drained),
    Scenario("started", 60, started),
)


def _hold_memory(bench: Bench) -> dict[str, Any]:
    """Start a process of nobody's that holds GPU memory; what it is, and whether nvidia-smi inside lists it."""
    engine = next(iter(sorted(Path(f"{bench.host.view}/opt/sglang/engines").glob("*/bin/python"))), None)
    python = f"/opt/sglang/engines/{engine.parents[1].name}/bin/python" if engine else "python3"
    program = (
        "import torch, time; x = torch.empty(%d << 20, dtype=torch.uint8, device='cuda'); x.fill_(1); time.sleep(300)"
    )
    command = [python, "-c", program % HOLDER_MIB]
    if bench.stand_in:
        command = ["python3", "/opt/sandbox/gpu/claim.py", "--gpus", "0", "--mib", str(HOLDER_MIB)]
    environment = ["--setenv=PYTHONDONTWRITEBYTECODE=1", "--collect"]
    bench.host.run(["systemd-run", f"--unit={HOLDER}", *environment, *command])
    query = ["nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits"]
    pid = bench.host.run(["systemctl", "show", "--value", "--property=MainPID", HOLDER]).stdout.strip()
    with contextlib.suppress(TimeoutError):
        _until(lambda: pid in bench.host.run(query).stdout, 40)
    return {"pid": pid, "listed": bench.host.run(query).stdout.splitlines()}


def _until(condition: Callable[[], bool], limit_s: float) -> float | None:
    """Seconds until the condition held, None when the limit passed first."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if condition():
            return round(time.monotonic() - began, 1)
        time.sleep(0.1)
    return None
