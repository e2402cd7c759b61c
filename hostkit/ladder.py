"""The ladder: from "a process exists" to "the answers are right". Each step has a limit and a message of its own.

A server that fails a step which decides is dead or wrong. One that fails another step answers right, but not as it
should: it is kept, and not accepted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hostkit import client, credential, processes, proofs, release, systemd
from hostkit.activity import Activity
from hostkit.events import Progress, Verdict
from hostkit.journal import Journal, cause, is_fatal, stage_of

_POLL_S = 0.25
_HEARTBEAT_S = 10.0
_SPEED_LIMIT_S = 120.0
_STREAMS = (1, 16)


class StepFailed(Exception):
    """A step of the ladder does not hold; the message is the evidence."""


@dataclass
class Climb:
    """One start on its way up: what is wanted, what was seen. tok_s is by number of streams, where it was measured."""

    unit: dict[str, Any]
    document: dict[str, Any]
    gates: dict[str, Any]
    mode: str
    progress: Progress
    journal: Journal
    invocation_id: str
    start_limit_s: float
    expected_s: float | None
    verdicts: list[Verdict] = field(default_factory=list)
    tok_s: dict[int, float] = field(default_factory=dict)
    was_healthy: bool = False
    accepted: bool = True

    @property
    def service(self) -> str:
        return f"{self.unit['name']}.service"

    @property
    def server(self) -> client.Server:
        return client.Server(release.base_url(self.unit), credential.api_key(self.document))

    @property
    def model(self) -> str:
        return str(self.document["served_model_name"])


@dataclass(frozen=True)
class Step:
    """`decides`: a server that fails it is dead or wrong."""

    name: str
    limit_s: float
    proof: Callable[[Climb], str]
    decides: bool = True


def steps(run: Climb) -> list[Step]:
    """What the mode asks for: `none` that it answers, `quick` that it answers right, `full` all of it."""
    gates = run.gates
    answers = [
        Step("started and healthy", run.start_limit_s, _healthy),
        Step("port bound by this unit", 10, _port_is_ours),
    ]
    quick = [
        Step("environment in force", 5, _environment, decides=False),
        Step("arguments in force", 30, _arguments, decides=False),
        Step("model listed", 10, _model),
        Step("known answer", float(gates["answer_within_s"]), _answer),
        Step("identifiers verbatim", float(gates["echo"]["within_s"]), _echo),
    ]
    full = [
        Step("speed", _SPEED_LIMIT_S, _speed, decides=False),
        Step("near-limit prompt", float(gates["near_limit_within_s"]), _near_limit, decides=False),
        Step("log as expected", 5, _log, decides=False),
    ]
    settled = [Step("no restart while settling", float(gates["settle_s"]), _settled)]
    if run.mode == "none":
        return answers
    return [*answers, *quick, *(full if run.mode == "full" else []), *settled]


def climb(run: Climb) -> None:
    """All steps in order. Raises StepFailed at the first that decides and does not hold."""
    for step in steps(run):
        try:
            evidence, ok = step.proof(run), True
        except (StepFailed, proofs.NotProven, client.WrongAnswer) as problem:
            evidence, ok = str(problem), False
        except Exception as problem:  # an answer of an odd shape, a command that failed: not as it should be
            evidence, ok = f"{type(problem).__name__}: {problem}", False
        run.verdicts.append(Verdict(f"{run.unit['name']}: {step.name}", ok, evidence, step.limit_s))
        run.progress.tell("ladder", f"{step.name}: {evidence}", unit=run.unit["name"])
        if not ok and step.decides:
            raise StepFailed(evidence)
        run.accepted = run.accepted and ok


def _healthy(run: Climb) -> str:
    """/health is 200 only after the warm-up's tokens; /v1/models answers earlier and is no test of readiness."""
    started, seen, told = time.monotonic(), 0, 0.0
    activity = Activity(systemd.show(run.service)[run.service].control_group)
    # One that is proven again long after its start may have logged anything since.
    run.was_healthy = client.status(run.server, "/health", within_s=25) == 200
    while True:
        _still_alive(run)
        lines = run.journal.lines[seen:]
        seen += len(lines)
        activity.look(logged=bool(lines))
        told = _tell_stage(run, lines, started, told, activity.text)
        if client.status(run.server, "/health", within_s=25) == 200:
            run.was_healthy = True
            return f"healthy after {time.monotonic() - started:.1f} s"
        _give_up_on_the_stuck(run, activity)
        if time.monotonic() - started > run.start_limit_s:
            raise StepFailed(f"not healthy within {run.start_limit_s:.0f} s; last line: {cause(run.journal.lines)}")
        time.sleep(_POLL_S)


def _give_up_on_the_stuck(run: Climb, activity: Activity) -> None:
    """A slow load reads or computes; one that does neither and logs nothing will not get any further."""
    limit_s = run.gates["stuck_after_s"]
    if activity.idle_s > limit_s:
        last = run.journal.lines[-1].strip() if run.journal.lines else "it logged nothing"
        raise StepFailed(f"stuck: no log line, no CPU and no disk activity for {limit_s} s; last line: {last}")


def _still_alive(run: Climb) -> None:
    """The main process of this very start runs and no line says that it cannot succeed."""
    unit = systemd.show(run.service)[run.service]
    if unit.invocation_id != run.invocation_id or unit.active != "active":
        run.journal.catch_up()
        raise StepFailed(f"the server ended while starting ({unit.ended}): {cause(run.journal.lines)}")
    fatal = next((line for line in run.journal.lines if is_fatal(line)), None)
    if fatal and not run.was_healthy:
        raise StepFailed(f"the server cannot start: {fatal.strip()}")


def _tell_stage(run: Climb, lines: list[str], started: float, told: float, activity: str) -> float:
    """Tell a new stage at once, and that the wait goes on every 10 s; returns when it was last told."""
    stages = [stage for stage in map(stage_of, lines) if stage]
    now = time.monotonic()
    if not stages and now - told < _HEARTBEAT_S:
        return told
    eta_s = run.expected_s - (now - started) if run.expected_s else None
    last = stages[-1] if stages else None
    message = last.name if last else f"no new stage in its log yet{f' ({activity})' if activity else ''}"
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
    if run.model not in names:
        raise StepFailed(f"lists {names}, not {run.model}")
    return str(names[0])


def _answer(run: Climb) -> str:
    answer = client.ask(run.server, run.model, run.gates, run.gates["answer_within_s"])
    return f"{run.gates['question']!r} -> {answer.text.strip()!r}, {answer.tokens} tokens in {answer.total_s} s"


def _echo(run: Climb) -> str:
    return proofs.echo(run.server, run.model, run.gates["echo"])


def _speed(run: Climb) -> str:
    """Measured at one stream and at sixteen, and kept; the profile's floor decides, where it has one."""
    arguments = client.get_json(run.server, "/server_info", within_s=30)
    tokens = proofs.tokens_per_stream(arguments)
    floor = {int(streams): float(least) for streams, least in run.gates["tok_s_floor"].items()}
    for streams in sorted({*_STREAMS, *floor}):
        run.tok_s[streams] = proofs.speed(run.server, run.model, streams, tokens, _SPEED_LIMIT_S)
    slow = [f"{run.tok_s[at]} tok/s at C={at}, not {least}" for at, least in floor.items() if run.tok_s[at] < least]
    if slow:
        raise StepFailed(f"slower than the profile's floor: {'; '.join(slow)}")
    return ", ".join(f"{rate} tok/s at C={streams}" for streams, rate in run.tok_s.items())


def _near_limit(run: Climb) -> str:
    [entry, *_] = client.get_json(run.server, "/v1/models", within_s=10)["data"]
    pool = client.get_json(run.server, "/server_info", within_s=30).get("max_total_num_tokens")
    limit = min(int(entry["max_model_len"]), int(pool or entry["max_model_len"]))
    try:
        return proofs.near_limit(run.server, run.model, limit, run.gates["near_limit_within_s"])
    finally:
        _still_alive(run)


def _log(run: Climb) -> str:
    largest_graph = int(run.unit["arguments"].get("cuda_graph_max_bs_decode") or max(_STREAMS))
    return proofs.log(run.journal.lines, run.gates["log"], largest_graph)


def _settled(run: Climb) -> str:
    time.sleep(run.gates["settle_s"])
    _still_alive(run)
    return f"the same process after {run.gates['settle_s']} s"
