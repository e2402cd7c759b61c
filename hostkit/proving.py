"""Starts the units of a release and has them climb the ladder; remembers how long it took, for the next estimate."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostkit import atomic, client, credential, ladder, paths, release, started, systemd
from hostkit.climb import Climb, StepFailed
from hostkit.events import Progress, Verdict
from hostkit.journal import Journal

_EXCERPT_LINES = 20
# It is up in a second, counts a worker after its first check, and is told again of one that it does not know.
_ROUTER_START_S = 120.0
Steps = Callable[[Climb], list[ladder.Step]]


class NotServing(Exception):
    """A release does not serve; with the verdicts and the log lines that say why."""

    def __init__(self, message: str, verdicts: list[Verdict], excerpt: list[str]) -> None:
        super().__init__(message)
        self.verdicts, self.excerpt = verdicts, excerpt


@dataclass
class Proof:
    """What was found of a release that serves. accepted: nothing fell short of what the profile asks."""

    verdicts: list[Verdict] = field(default_factory=list)
    tok_s: dict[int, float] = field(default_factory=dict)
    accepted: bool = True

    def shortcomings(self) -> str:
        return "; ".join(f"{verdict.step}: {verdict.evidence}" for verdict in self.verdicts if not verdict.ok)


def runs(target: dict[str, Any]) -> bool:
    """Whether every unit of the release runs, and was started from exactly this release."""
    return not lacking(target)


def lacking(target: dict[str, Any]) -> list[str]:
    """Services of the release that do not run, were started from something else, or hold on to a worker that is so.

    A decode server holds on to its prefill server. A router takes a worker back by itself.
    """
    units = systemd.show(*release.services(target))
    wrong = [name for name, unit in units.items() if not _runs_right(unit, target)]
    held_on_to = {name.removesuffix(".service") for name in wrong}
    follow = [unit for unit in release.workers(target) if held_on_to & set(unit.get("after", []))]
    return sorted({*wrong, *(f"{unit['name']}.service" for unit in follow)})


def _runs_right(unit: systemd.Unit, target: dict[str, Any]) -> bool:
    return unit.active == "active" and started.runs_from(unit.name, unit.invocation_id, target)


def answers(target: dict[str, Any]) -> bool:
    """Whether the entry port gives the right answer now, whoever computes it."""
    try:
        rules = release.gates(target["digest"])
        server = client.Server(release.base_url(target["units"][-1]), credential.api_key(target))
        return bool(client.ask(server, target["served_model_name"], rules, rules["answer_within_s"]))
    except (client.WrongAnswer, OSError, ValueError):
        return False


def start(
    target: dict[str, Any], mode: str, progress: Progress, before_routers: Callable[[], None] = lambda: None
) -> Proof:
    """Start what is installed and prove it: all workers at once, then the router. Raises NotServing.

    `before_routers` is called once the workers are proven; what it raises is raised.
    """
    began = time.monotonic()

    def begin(target: dict[str, Any], units: Sequence[dict[str, Any]], progress: Progress) -> None:
        if units[0]["role"] == "router":
            before_routers()
        _start(target, units, progress)

    proof = _climbed(target, mode, progress, begin)
    systemd.run("systemctl", "start", paths.TARGET, check=False)  # so that stopping the target stops its units
    _remember(target, time.monotonic() - began)
    return proof


def _start(target: dict[str, Any], units: Sequence[dict[str, Any]], progress: Progress) -> None:
    for unit in units:
        service = f"{unit['name']}.service"
        systemd.run("systemctl", "start", service, timeout_s=120, check=False)
        progress.tell("start", f"{service} started", unit=unit["name"], eta_s=past(target).get("start_s"))


def prove(target: dict[str, Any], mode: str, progress: Progress) -> Proof:
    """Prove what runs, as it runs. Raises NotServing."""
    return _climbed(target, mode, progress, lambda *_: None)


def _climbed(target: dict[str, Any], mode: str, progress: Progress, begin: Callable[..., None]) -> Proof:
    """Up side by side, asked and measured one after the other; the log is read once all load is over."""
    runs: list[Climb] = []
    with contextlib.ExitStack() as journals:
        for units in filter(None, (release.workers(target), release.routers(target))):
            begin(target, units, progress)
            fresh = [journals.enter_context(_climb(target, unit, mode, progress)) for unit in units]
            runs += fresh
            _all_climb(runs, fresh, ladder.up, len(fresh))
            _all_climb(runs, fresh, ladder.right, 1)
        _all_climb(runs, runs, ladder.still_right, len(runs))
    rates = {streams: rate for run in runs for streams, rate in run.tok_s.items()}
    return Proof([one for run in runs for one in run.verdicts], rates, all(run.accepted for run in runs))


@contextlib.contextmanager
def _climb(target: dict[str, Any], unit: dict[str, Any], mode: str, progress: Progress) -> Iterator[Climb]:
    """A climb of the unit's present start, whose log is followed meanwhile."""
    service, rules, before = f"{unit['name']}.service", release.gates(target["digest"]), past(target)
    cold = before.get("engine") != target["engine"]["digest"]
    limit_s = rules["first_start_within_s"] if cold else rules["start_within_s"]
    expected_s = before.get("start_s")
    if unit["role"] == "router":
        limit_s, expected_s = _ROUTER_START_S, None
    invocation = systemd.show(service)[service].invocation_id
    with Journal(invocation) as journal:
        given_up = threading.Event()
        yield Climb(unit, target, rules, mode, progress, journal, invocation, limit_s, expected_s, given_up)


def _all_climb(all_runs: list[Climb], runs: list[Climb], steps: Steps, at_once: int) -> None:
    """Raises NotServing with what the first unit that failed has to say; the others are not waited for then."""
    with ThreadPoolExecutor(at_once) as pool:
        climbing = {pool.submit(ladder.climb, run, steps(run)): run for run in runs}
        for ended in as_completed(climbing):
            failure = ended.exception()
            if failure is None:
                continue
            for run in all_runs:
                run.given_up.set()
            pool.shutdown(cancel_futures=True)
            if not isinstance(failure, StepFailed):
                raise failure
            failed = climbing[ended]
            verdicts = [one for run in all_runs for one in run.verdicts]
            raise NotServing(f"{failed.service}: {failure}", verdicts, failed.journal.lines[-_EXCERPT_LINES:])


def past(target: dict[str, Any]) -> dict[str, Any]:
    """What is remembered of the last start of this profile, {} if there was none."""
    try:
        document: dict[str, Any] = json.loads(_record_path(target["profile"]).read_text())
    except (OSError, ValueError):
        return {}
    return document


def _record_path(profile: str) -> Path:
    return paths.RECORDS / f"{profile}.json"


def _remember(target: dict[str, Any], start_s: float) -> None:
    """What the next run's estimate rests on; a full disk must not take down what serves."""
    document = {
        "schema": 1,
        "release": target["digest"],
        "engine": target["engine"]["digest"],
        "start_s": round(start_s, 1),
        "at": time.time(),
    }
    with contextlib.suppress(OSError):
        atomic.write(_record_path(target["profile"]), json.dumps(document) + "\n")
