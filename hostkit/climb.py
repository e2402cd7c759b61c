"""One start on its way up, and the wait until it is healthy; a sign that it never will be ends the wait at once."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from hostkit import client, credential, release, router, systemd
from hostkit.activity import Activity
from hostkit.events import Progress, Verdict
from hostkit.journal import Journal, cause, is_fatal, stage_of

_POLL_S = 0.25
_HEARTBEAT_S = 10.0


class StepFailed(Exception):
    """A step of the ladder does not hold; the message is the evidence."""


@dataclass
class Climb:
    """One start on its way up: what is wanted, what was seen. tok_s is by number of streams, where it was measured.

    given_up is set when another unit of the release cannot start.
    """

    unit: dict[str, Any]
    document: dict[str, Any]
    gates: dict[str, Any]
    mode: str
    progress: Progress
    journal: Journal
    invocation_id: str
    start_limit_s: float
    expected_s: float | None
    given_up: threading.Event
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

    def tell(self, stage: str, message: str, **more: float | None) -> None:
        """An event of this unit; its name is in the message where there are several."""
        name = self.unit["name"]
        several = len(self.document["units"]) > 1
        self.progress.tell(stage, f"{name}: {message}" if several else message, unit=name, **more)

    @property
    def role(self) -> str:
        return str(self.unit["role"])

    @property
    def workers(self) -> list[client.Server]:
        """Who computes the answers of this unit: those behind a router, or it itself. Prefill comes before decode."""
        behind = [client.Server(worker["url"], self.server.api_key) for worker in self.unit.get("workers", [])]
        return behind or [self.server]


def healthy(run: Climb) -> str:
    """Wait until the unit can serve. Raises StepFailed as soon as it is known that it will not."""
    started, seen, told = time.monotonic(), 0, 0.0
    activity = Activity(systemd.show(run.service)[run.service].control_group)
    # One that is proven again long after its start may have logged anything since.
    run.was_healthy = _lacks(run) is None
    while True:
        still_alive(run)
        lines = run.journal.lines[seen:]
        seen += len(lines)
        activity.look(logged=bool(lines))
        told = _tell_stage(run, lines, started, told, activity.text)
        lacks = _lacks(run)
        if lacks is None:
            run.was_healthy = True
            return f"healthy after {time.monotonic() - started:.1f} s"
        _give_up_on_the_stuck(run, activity)
        if time.monotonic() - started > run.start_limit_s:
            last = f"{lacks}; last line: {cause(run.journal.lines)}"
            raise StepFailed(f"not healthy within {run.start_limit_s:.0f} s: {last}")
        time.sleep(_POLL_S)


def _lacks(run: Climb) -> str | None:
    """What the unit lacks to serve, None where it can.

    A server's /health is 200 only after the warm-up's tokens; /v1/models answers earlier and is no test of readiness.
    """
    checks = run.unit.get("checks") or {"ready": "/health", "workers": {}}
    status = client.status(run.server, checks["ready"], within_s=25)
    if status != 200:
        return f"{checks['ready']} {f'is {status}' if status else 'gives no answer'}"
    return _lacks_workers(run, checks["workers"]) if checks["workers"] else None


def _lacks_workers(run: Climb, wanted: dict[str, int]) -> str | None:
    """It is told of those it does not know, and is to forget those that are not of this release.

    A worker that came later than the router waits for is never asked again (router 0.3.2).
    """
    try:
        counts = router.healthy(run.server)
        if counts == wanted:
            return None
        router.send_to(run.server, run.unit["workers"])
    except client.WrongAnswer as problem:
        return str(problem)
    return f"counts {router.counted(counts)} of {router.counted(wanted)} healthy workers"


def _give_up_on_the_stuck(run: Climb, activity: Activity) -> None:
    """A slow load reads or computes; one that does neither and logs nothing will not get any further."""
    limit_s = run.gates["stuck_after_s"]
    if activity.idle_s > limit_s:
        last = run.journal.lines[-1].strip() if run.journal.lines else "it logged nothing"
        raise StepFailed(f"stuck: no log line, no CPU and no disk activity for {limit_s} s; last line: {last}")


def still_alive(run: Climb) -> None:
    """The main process of this very start runs, no line says that it cannot succeed, and no other unit failed."""
    if run.given_up.is_set():
        raise StepFailed("given up, since another unit failed")
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
    run.tell("start", message, percent=last.percent if last else None, eta_s=eta_s)
    return now
