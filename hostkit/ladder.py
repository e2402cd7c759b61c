"""The ladder: from "a process exists" to "the answer is right". Each step has a limit and a message of its own."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hostkit import client, credential, processes, release, systemd
from hostkit.events import Progress, Verdict
from hostkit.journal import Journal, cause, is_fatal, stage_of

_POLL_S = 0.25
_HEARTBEAT_S = 10.0


class StepFailed(Exception):
    """A step of the ladder does not hold; the message is the evidence."""


@dataclass
class Climb:
    """One start on its way up: what is wanted, what was seen."""

    unit: dict[str, Any]
    document: dict[str, Any]
    gates: dict[str, Any]
    progress: Progress
    journal: Journal
    invocation_id: str
    start_limit_s: float
    expected_s: float | None
    verdicts: list[Verdict] = field(default_factory=list)
    was_healthy: bool = False

    @property
    def service(self) -> str:
        return f"{self.unit['name']}.service"

    @property
    def server(self) -> client.Server:
        return client.Server(release.base_url(self.unit), credential.api_key(self.document))


def climb(run: Climb) -> None:
    """All steps in order. Raises StepFailed at the first that does not hold; its verdict is the last one."""
    steps: tuple[tuple[str, float, Callable[[Climb], str]], ...] = (
        ("started and healthy", run.start_limit_s, _healthy),
        ("port bound by this unit", 10, _port_is_ours),
        ("environment in force", 5, _environment),
        ("arguments in force", 30, _arguments),
        ("model listed", 10, _model),
        ("known answer", float(run.gates["answer_within_s"]), _answer),
        ("no restart while settling", float(run.gates["settle_s"]), _settled),
    )
    for name, limit_s, step in steps:
        try:
            evidence, ok = step(run), True
        except (StepFailed, client.WrongAnswer, OSError, ValueError, KeyError) as problem:
            evidence, ok = str(problem), False
        run.verdicts.append(Verdict(f"{run.unit['name']}: {name}", ok, evidence, limit_s))
        run.progress.tell("ladder", f"{name}: {evidence}", unit=run.unit["name"])
        if not ok:
            raise StepFailed(evidence)


def _healthy(run: Climb) -> str:
    """/health is 200 only after the warm-up's tokens; /v1/models answers earlier and is no test of readiness."""
    started, seen, told = time.monotonic(), 0, 0.0
    # One that is proven again long after its start may have logged anything since.
    run.was_healthy = client.status(run.server, "/health", within_s=25) == 200
    while True:
        _still_alive(run)
        lines = run.journal.lines[seen:]
        seen += len(lines)
        told = _tell_stage(run, lines, started, told)
        if client.status(run.server, "/health", within_s=25) == 200:
            run.was_healthy = True
            return f"healthy after {time.monotonic() - started:.1f} s"
        if time.monotonic() - started > run.start_limit_s:
            raise StepFailed(f"not healthy within {run.start_limit_s:.0f} s; last line: {cause(run.journal.lines)}")
        time.sleep(_POLL_S)


def _still_alive(run: Climb) -> None:
    """The main process of this very start runs and no line says that it cannot succeed."""
    unit = systemd.show(run.service)[run.service]
    if unit.invocation_id != run.invocation_id or unit.active != "active":
        time.sleep(_POLL_S)  # its last lines are on their way through the journal
        raise StepFailed(f"the server ended while starting ({unit.ended}): {cause(run.journal.lines)}")
    fatal = next((line for line in run.journal.lines if is_fatal(line)), None)
    if fatal and not run.was_healthy:
        raise StepFailed(f"the server cannot start: {fatal.strip()}")


def _tell_stage(run: Climb, lines: list[str], started: float, told: float) -> float:
    """Tell a new stage at once, and that the wait goes on every 10 s; returns when it was last told."""
    stages = [stage for stage in map(stage_of, lines) if stage]
    now = time.monotonic()
    if not stages and now - told < _HEARTBEAT_S:
        return told
    eta_s = run.expected_s - (now - started) if run.expected_s else None
    last = stages[-1] if stages else None
    message = last.name if last else "no new stage in its log yet"
    run.progress.tell("start", message, unit=run.unit["name"], percent=last.percent if last else None, eta_s=eta_s)
    return now


def _port_is_ours(run: Climb) -> str:
    """An old server on the same port would answer just as well: the listener must be of this unit."""
    for address, port, pid in processes.listeners():
        if port == run.unit["port"]:
            process = processes.read(pid) if pid else None
            if process is not None and process.unit == run.service:
                return f"{address}:{port} by pid {process.pid}"
            raise StepFailed(f"port {port} is bound by {process.command if process else 'an unseen process'}")
    raise StepFailed(f"nobody listens on port {run.unit['port']}")


def _environment(run: Climb) -> str:
    actual = processes.environment(systemd.show(run.service)[run.service].main_pid)
    wanted = run.unit["environment"]
    wrong = [f"{key}={actual.get(key)!r}, not {value!r}" for key, value in wanted.items() if actual.get(key) != value]
    if wrong:
        raise StepFailed("; ".join(wrong))
    return f"{len(wanted)} variables as planned"


def _arguments(run: Climb) -> str:
    """What the server itself says it runs with equals the plan, for every argument that the plan sets."""
    actual = client.get_json(run.server, "/server_info", within_s=30)
    wanted = {key: value for key, value in run.unit["arguments"].items() if not isinstance(value, dict)}
    wrong = [
        f"{key} is {actual.get(key)!r}, not {value!r}" for key, value in wanted.items() if actual.get(key) != value
    ]
    if wrong:
        raise StepFailed("; ".join(wrong))
    return f"{len(wanted)} arguments as planned"


def _model(run: Climb) -> str:
    names = [model["id"] for model in client.get_json(run.server, "/v1/models", within_s=10)["data"]]
    if run.document["served_model_name"] not in names:
        raise StepFailed(f"lists {names}, not {run.document['served_model_name']}")
    return str(names[0])


def _answer(run: Climb) -> str:
    answer = client.ask(run.server, run.document["served_model_name"], run.gates, run.gates["answer_within_s"])
    return f"{run.gates['question']!r} -> {answer.text.strip()!r}, {answer.tokens} tokens in {answer.total_s} s"


def _settled(run: Climb) -> str:
    time.sleep(run.gates["settle_s"])
    _still_alive(run)
    return f"the same process after {run.gates['settle_s']} s"
