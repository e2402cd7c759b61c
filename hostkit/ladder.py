"""The ladder: from "a process exists" to "the answers are right". Each step has a limit and a message of its own.

A unit that fails a step which decides is dead or wrong. One that fails another step answers right, but not as it
should: it is kept, and not accepted.

Every unit starts, every one that can answer alone is asked, and the entry unit is measured: a router after its workers,
so that what it answers is theirs. A prefill or decode server has no answer without its router.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from hostkit import client, gates, processes, proofs, release, systemd
from hostkit.climb import Climb, StepFailed, healthy, still_alive
from hostkit.events import Verdict

_SPEED_LIMIT_S = 120.0
_STREAMS = (1, 16)
_ANSWERS = ("server", "replica", "router")
_DECODES = ("server", "replica", "decode")


@dataclass(frozen=True)
class Step:
    """`decides`: a server that fails it is dead or wrong."""

    name: str
    limit_s: float
    proof: Callable[[Climb], str]
    decides: bool = True


def up(run: Climb) -> list[Step]:
    """That the unit is up, whatever the mode; units climb these side by side."""
    return [
        Step("started and healthy", run.start_limit_s, healthy),
        Step("port bound by this unit", 10, _port_is_ours),
    ]


def right(run: Climb) -> list[Step]:
    """That it is what was planned and answers right: nothing in mode `none`, and how fast it is in mode `full`."""
    limits = run.gates
    if run.mode == "none":
        return []
    ports = Step("other ports bound by this unit", 10, _other_ports, decides=False)
    # A router has no /server_info, and writes its title over its environment (sglang-router 0.3.2, measured).
    in_force = [
        Step("environment in force", 5, _environment, decides=False),
        Step("arguments in force", 30, _arguments, decides=False),
    ]
    answers = [
        Step("model listed", 10, _model),
        Step("known answer", float(limits["answer_within_s"]), _answer),
        Step("identifiers verbatim", float(limits["echo"]["within_s"]), _echo),
    ]
    measured = [
        Step("speed", _SPEED_LIMIT_S, _speed, decides=False),
        Step("near-limit prompt", float(limits["near_limit_within_s"]), _near_limit, decides=False),
    ]
    return [
        *([ports] if len(release.ports(run.unit)) > 1 else []),
        *(in_force if run.role != "router" else []),
        *(answers if run.role in _ANSWERS else []),
        *_full(run, measured),
    ]


def _full(run: Climb, measured: list[Step]) -> list[Step]:
    """The floor of the profile is that of the entry. A replica is put under load all the same, for its log to show."""
    if run.mode != "full":
        return []
    if run.role == "replica":
        return [Step("under load", _SPEED_LIMIT_S, _under_load, decides=False)]
    return measured if run.role in _ANSWERS else []


def still_right(run: Climb) -> list[Step]:
    """What the load of all the other steps has left: lines in the log, and the process that began."""
    if run.mode == "none":
        return []
    log = [Step("log as expected", 5, _log, decides=False)] if run.role != "router" and run.mode == "full" else []
    return [*log, Step("no restart while settling", float(run.gates["settle_s"]), _settled)]


def climb(run: Climb, steps: list[Step]) -> None:
    """All steps in order. Raises StepFailed at the first that decides and does not hold."""
    for step in steps:
        try:
            evidence, ok = step.proof(run), True
        except (StepFailed, gates.NotMet, proofs.NotProven, client.WrongAnswer) as problem:
            evidence, ok = str(problem), False
        except Exception as problem:  # an answer of an odd shape, a command that failed: not as it should be
            evidence, ok = f"{type(problem).__name__}: {problem}", False
        run.verdicts.append(Verdict(f"{run.unit['name']}: {step.name}", ok, evidence, step.limit_s))
        run.tell("ladder", f"{step.name}: {evidence}")
        if not ok and step.decides:
            raise StepFailed(evidence)
        run.accepted = run.accepted and ok


def _port_is_ours(run: Climb) -> str:
    """An old server on the same port would answer just as well: the listener must be of this unit."""
    return _bound(run, [run.unit["port"]])


def _other_ports(run: Climb) -> str:
    """A rank, or what sends the KV cache, may bind its own a moment after the server answers."""
    others = sorted(set(release.ports(run.unit).values()) - {run.unit["port"]})
    return gates.soon(lambda: _bound(run, others), 8.0)


def _bound(run: Climb, ports: list[int]) -> str:
    """Raises gates.NotMet."""
    owners = {port: (address, pid) for address, port, pid in processes.listeners() if port in ports}
    return ", ".join(_by_this_unit(run, port, *owners.get(port, ("", None))) for port in ports)


def _by_this_unit(run: Climb, port: int, address: str, pid: int | None) -> str:
    if not address:
        raise gates.NotMet(f"nobody listens on port {port}")
    process = processes.read(pid) if pid else None
    if process is None or process.unit != run.service:
        raise gates.NotMet(f"port {port} is bound by {process.command if process else 'an unseen process'}")
    return f"{address}:{port} by pid {process.pid}"


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
    tokens = _tokens_per_stream(run)
    floor = {int(streams): float(least) for streams, least in run.gates["tok_s_floor"].items()}
    for streams in sorted({*_STREAMS, *floor}):
        run.tok_s[streams] = proofs.speed(run.server, run.model, streams, tokens, _SPEED_LIMIT_S)
    slow = [f"{run.tok_s[at]} tok/s at C={at}, not {least}" for at, least in floor.items() if run.tok_s[at] < least]
    if slow:
        raise StepFailed(f"slower than the profile's floor: {'; '.join(slow)}")
    return ", ".join(f"{rate} tok/s at C={streams}" for streams, rate in run.tok_s.items())


def _tokens_per_stream(run: Climb) -> int:
    """By the decode log of who decodes: the last of the workers, where prefill comes first."""
    return proofs.tokens_per_stream(client.get_json(run.workers[-1], "/server_info", within_s=30))


def _under_load(run: Climb) -> str:
    rates = {at: proofs.speed(run.server, run.model, at, _tokens_per_stream(run), _SPEED_LIMIT_S) for at in _STREAMS}
    return ", ".join(f"{rate} tok/s at C={streams}" for streams, rate in rates.items())


def _near_limit(run: Climb) -> str:
    """The limit is that of the smallest worker; a router's own /v1/models says nothing of it."""
    limit = min(map(_limit_tokens, run.workers))
    try:
        return proofs.near_limit(run.server, run.model, limit, run.gates["near_limit_within_s"])
    finally:
        still_alive(run)


def _limit_tokens(worker: client.Server) -> int:
    [entry, *_] = client.get_json(worker, "/v1/models", within_s=10)["data"]
    pool = client.get_json(worker, "/server_info", within_s=30).get("max_total_num_tokens")
    return min(int(entry["max_model_len"]), int(pool or entry["max_model_len"]))


def _log(run: Climb) -> str:
    """A prefill server decodes nothing, so its log says nothing of decoding."""
    largest_graph = int(run.unit["arguments"].get("cuda_graph_max_bs_decode") or max(_STREAMS))
    rule = run.gates["log"]
    decodes = run.role in _DECODES
    return proofs.log(run.journal.lines, {**rule, "cuda_graph": rule["cuda_graph"] and decodes}, largest_graph)


def _settled(run: Climb) -> str:
    time.sleep(run.gates["settle_s"])
    still_alive(run)
    return f"the same process after {run.gates['settle_s']} s"
