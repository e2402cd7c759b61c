"""Starts the units of a release and has them climb the ladder; remembers how long it took, for the next estimate."""

import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostkit import atomic, paths, release, started, systemd
from hostkit.events import Progress, Verdict
from hostkit.journal import Journal
from hostkit.ladder import Climb, StepFailed, climb

_EXCERPT_LINES = 20


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
    units = systemd.show(*release.services(target))
    return all(
        unit.active == "active" and started.runs_from(name, unit.invocation_id, target) for name, unit in units.items()
    )


def start(target: dict[str, Any], mode: str, progress: Progress) -> Proof:
    """Start what is installed and prove it. Raises NotServing with the last lines of this very start."""
    began = time.monotonic()
    proof = Proof()
    for unit in target["units"]:
        service = f"{unit['name']}.service"
        systemd.run("systemctl", "start", service, timeout_s=120, check=False)
        progress.tell("start", f"{service} started", unit=unit["name"], eta_s=past(target).get("start_s"))
        _prove(target, unit, mode, progress, proof)
    systemd.run("systemctl", "start", paths.TARGET, check=False)  # so that stopping the target stops its units
    _remember(target, time.monotonic() - began)
    return proof


def prove(target: dict[str, Any], mode: str, progress: Progress) -> Proof:
    """Prove what runs, as it runs. Raises NotServing."""
    proof = Proof()
    for unit in target["units"]:
        _prove(target, unit, mode, progress, proof)
    return proof


def _prove(target: dict[str, Any], unit: dict[str, Any], mode: str, progress: Progress, proof: Proof) -> None:
    service, rules, before = f"{unit['name']}.service", release.gates(target["digest"]), past(target)
    cold = before.get("engine") != target["engine"]["digest"]
    limit_s = rules["first_start_within_s"] if cold else rules["start_within_s"]
    invocation = systemd.show(service)[service].invocation_id
    with Journal(invocation) as journal:
        run = Climb(unit, target, rules, mode, progress, journal, invocation, limit_s, before.get("start_s"))
        try:
            climb(run)
        except StepFailed as failure:
            raise NotServing(f"{service}: {failure}", run.verdicts, journal.lines[-_EXCERPT_LINES:]) from None
    proof.verdicts += run.verdicts
    proof.tok_s |= run.tok_s
    proof.accepted = proof.accepted and run.accepted


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
