"""Takes the host from one release to another: gates, stop, GPUs shown to be free, start, ladder; or back.

The release that served before is started again when the new one does not serve: a failure leaves the host as
it was. Runs as a transient unit under the host's lock.
"""

import json
import time
from pathlib import Path
from typing import Any

from hostkit import atomic, events, evict, gates, gpus, ours, paths, release, started, systemd
from hostkit.events import Progress, Result, Verdict
from hostkit.journal import Journal
from hostkit.ladder import Climb, StepFailed, climb

_GPUS_FREE_WITHIN_S = 90
_EXCERPT_LINES = 20
_INTENT = paths.STATE / "intent.json"


class NotServing(Exception):
    """A release was started and did not get up the ladder."""

    def __init__(self, message: str, verdicts: list[Verdict], excerpt: list[str]) -> None:
        super().__init__(message)
        self.verdicts, self.excerpt = verdicts, excerpt


def activate(request: dict[str, Any], progress: Progress) -> Result:
    """request: {"release": digest, "evict": [servers as the look reported them]}.

    The code of the result says what the host does now (hostkit/events.py).
    """
    wanted, targets = request["release"], request.get("evict", [])
    try:
        new = release.load(wanted)
        release.gates(wanted)
        ran = _runs(new)
        verdicts = _before_any_change(new, progress, evict.leaving(targets))
    except Exception as problem:  # whatever it is, nothing was changed yet
        return Result(events.REFUSED, f"refused, nothing was changed: {_said(problem)}")
    try:
        verdicts += evict.evict(targets, progress)
    except Exception as problem:
        refused = Result(events.REFUSED, f"refused, the playbook's own server was not touched: {_said(problem)}")
        return evict.told(refused, targets)
    previous = release.last_good()
    atomic.write(_INTENT, json.dumps({"schema": 1, "from": release.active(), "to": wanted, "since": time.time()}))
    try:
        verdicts += _bring_up(new, progress, ran)
        result = Result(events.OK, f"release {wanted} serves", verdicts)
    except Exception as problem:  # a full disk leaves the release as little serving as a server that died
        result = _after_failure(new, previous, ran, _as_failure(problem), progress)
    _INTENT.unlink(missing_ok=True)
    return evict.told(result, targets)


def _said(problem: Exception) -> str:
    known = isinstance(problem, NotServing | gates.NotMet | release.Damaged | gpus.DriverError)
    return str(problem) if known else f"{type(problem).__name__}: {problem}"


def _as_failure(problem: Exception) -> NotServing:
    return problem if isinstance(problem, NotServing) else NotServing(_said(problem), [], [])


def _after_failure(
    new: dict[str, Any], previous: str | None, ran: bool, failure: NotServing, progress: Progress
) -> Result:
    """A server that ran before from this very release, and was only to be proven again, is never stopped for it."""
    if ran and _runs(new):
        message = f"release {new['digest']} goes on running as before, but was not proven: {failure}"
        return Result(events.NOT_ACCEPTED, message, failure.verdicts, failure.excerpt)
    try:
        return _go_back(new["digest"], previous, failure, progress)
    except Exception as problem:
        message = f"release {new['digest']} does not serve: {failure}. Going back failed as well: {_said(problem)}"
        return Result(events.STOPPED, message, failure.verdicts, failure.excerpt)


def _before_any_change(new: dict[str, Any], progress: Progress, leaving: gates.Leaving) -> list[Verdict]:
    """What can be known to fail is found while the old server still serves. Raises gates.NotMet."""
    own = ours.services()
    verdicts = [Verdict("checkpoint verified", True, gates.checkpoint_verified(new), 10)]
    for unit in new["units"]:
        progress.tell("gates", "asking the engine's parser", unit=unit["name"])
        verdicts += [
            Verdict("arguments accepted by the engine", True, gates.argv_accepted(new, unit), 180),
            Verdict("GPUs held by nobody else", True, gates.no_foreign_holder(unit["gpus"], own, leaving), 30),
            Verdict("port free", True, gates.port_free(unit["port"], own, leaving), 10),
        ]
    progress.tell("gates", "; ".join(verdict.evidence for verdict in verdicts))
    return verdicts


def _bring_up(target: dict[str, Any], progress: Progress, runs: bool) -> list[Verdict]:
    """Stop what runs, prove the GPUs free, install and start the target; where it `runs` already it is only proven.

    Raises NotServing.
    """
    if runs:
        release.install(target)
        release.set_active(target["digest"])
        verdicts = [verdict for unit in target["units"] for verdict in _prove(target, unit, progress)]
        release.mark_good(target["digest"])
        return verdicts
    stop_all(progress)
    try:
        free = _gpus_free(target)
    except (gates.NotMet, gpus.DriverError) as problem:
        raise NotServing(f"the GPUs are not free: {problem}", [], []) from None
    progress.tell("gpus", free.evidence)
    return [free, *_install_and_start(target, progress)]


def _gpus_free(target: dict[str, Any]) -> Verdict:
    cards = [pci for unit in target["units"] for pci in unit["gpus"]]
    return Verdict("GPUs free", True, gates.gpus_free(cards, _GPUS_FREE_WITHIN_S), _GPUS_FREE_WITHIN_S)


def _install_and_start(target: dict[str, Any], progress: Progress) -> list[Verdict]:
    release.install(target)
    release.set_active(target["digest"])
    verdicts = [verdict for unit in target["units"] for verdict in _start(target, unit, progress)]
    systemd.run("systemctl", "start", paths.TARGET)  # so that stopping the target stops its units
    release.mark_good(target["digest"])
    return verdicts


def stop_all(progress: Progress) -> None:
    """Stop every unit of the playbook: the engine drains, systemd then ends the whole control group."""
    running = [unit for unit in systemd.show(*ours.services()).values() if unit.active not in ("inactive", "failed")]
    for unit in running:
        progress.tell("stop", f"{unit.name}, pid {unit.main_pid}", unit=unit.name)
        systemd.stop(unit.name, release.STOP_LIMIT_S)
    systemd.run("systemctl", "reset-failed", *ours.services(), check=False)


def _runs(target: dict[str, Any]) -> bool:
    """Whether every unit of the release runs, and was started from exactly this release."""
    units = systemd.show(*release.services(target))
    return all(
        unit.active == "active" and started.runs_from(name, unit.invocation_id, target) for name, unit in units.items()
    )


def _start(target: dict[str, Any], unit: dict[str, Any], progress: Progress) -> list[Verdict]:
    service = f"{unit['name']}.service"
    began = time.monotonic()
    systemd.run("systemctl", "start", service, timeout_s=120, check=False)
    progress.tell("start", f"{service} started", unit=unit["name"], eta_s=_past(target).get("start_s"))
    verdicts = _prove(target, unit, progress)
    _remember(target, time.monotonic() - began)
    return verdicts


def _prove(target: dict[str, Any], unit: dict[str, Any], progress: Progress) -> list[Verdict]:
    """Climb the ladder with the unit as it runs now. Raises NotServing with the last lines of this very start."""
    service, rules, past = f"{unit['name']}.service", release.gates(target["digest"]), _past(target)
    cold = past.get("engine") != target["engine"]["digest"]
    limit_s = rules["first_start_within_s"] if cold else rules["start_within_s"]
    invocation = systemd.show(service)[service].invocation_id
    with Journal(invocation) as journal:
        run = Climb(unit, target, rules, progress, journal, invocation, limit_s, past.get("start_s"))
        try:
            climb(run)
        except StepFailed as failure:
            raise NotServing(f"{service}: {failure}", run.verdicts, journal.lines[-_EXCERPT_LINES:]) from None
    return run.verdicts


def _past(target: dict[str, Any]) -> dict[str, Any]:
    """What is remembered of the last start of this profile, {} if there was none."""
    try:
        document: dict[str, Any] = json.loads(_record_path(target["profile"]).read_text())
    except (OSError, ValueError):
        return {}
    return document


def _record_path(profile: str) -> Path:
    return paths.RECORDS / f"{profile}.json"


def _remember(target: dict[str, Any], start_s: float) -> None:
    """What the next run's estimate rests on."""
    document = {
        "schema": 1,
        "release": target["digest"],
        "engine": target["engine"]["digest"],
        "start_s": round(start_s, 1),
        "at": time.time(),
    }
    atomic.write(_record_path(target["profile"]), json.dumps(document) + "\n")


def _go_back(wanted: str, previous: str | None, failure: NotServing, progress: Progress) -> Result:
    """Start the release that last served again, or stay stopped and say so."""
    what = f"release {wanted} does not serve: {failure}"
    progress.tell("failed", what)
    stop_all(progress)
    if previous is None or previous == wanted:
        release.set_inactive()
        message = f"{what}. No other release served before, so the host is stopped"
        return Result(events.STOPPED, message, failure.verdicts, failure.excerpt)
    progress.tell("rollback", f"starting {previous}, which served before")
    try:
        verdicts = _start_again(release.load(previous), progress)
    except Exception as second:
        stop_all(progress)
        release.set_inactive()
        message = f"{what}. The release before, {previous}, does not serve either: {_said(second)}. The host is stopped"
        return Result(events.STOPPED, message, failure.verdicts, failure.excerpt)
    message = f"{what}. Release {previous} serves again"
    return Result(events.ROLLED_BACK, message, [*failure.verdicts, *verdicts], failure.excerpt)


def _start_again(previous: dict[str, Any], progress: Progress) -> list[Verdict]:
    """Start what served before. Cards that are not quite free do not keep it from trying: it served beside that."""
    try:
        progress.tell("gpus", _gpus_free(previous).evidence)
    except (gates.NotMet, gpus.DriverError) as problem:
        progress.tell("gpus", f"not free, trying all the same: {problem}")
    return _install_and_start(previous, progress)
