"""The state of the host in one look, for the operator: what serves, since when, and each problem in one line."""

import time
from pathlib import Path
from typing import Any

from hostkit import (
    acceptance,
    client,
    console,
    gpus,
    hold,
    intent,
    jobs,
    ours,
    release,
    router,
    stamps,
    started,
    systemd,
    under_way,
)


def look() -> tuple[list[str], list[str]]:
    """(what there is, what is wrong), each as lines to print."""
    active, held = release.active(), hold.read()
    lines = [f"release  {_release(active)}"]
    lines += [f"job      {under_way.in_words(kind, under_way.last_event(kind))}" for kind in under_way.kinds()]
    problems = [hold.describe(held)] if held else []
    problems += ["an activation was cut off: sglang-box start"] if intent.read() and not _at_work() else []
    there = [unit for unit in systemd.show(*ours.services()).values() if unit.load != "not-found"]
    for unit in there:
        lines.append(f"unit     {_unit(unit)}")
        problems += _unit_problems(unit, active)
    problems += [*_drift(active), *_checkpoint(active), *_worker_problems(active)]
    card_lines, card_problems = _cards()
    if active and not held:
        answer = console.ask(5.0, None)
        lines.append(f"answer   {answer['message']}" + (f" ({answer['total_s']} s)" if answer["ok"] else ""))
        problems += [] if answer["ok"] else [f"no right answer: {answer['message']}"]
    return lines + card_lines, problems + card_problems


def releases() -> list[str]:
    """A line for each release on the host, the one that was judged last first."""
    rows = [("release", "profile", "verdict", "when", "tok/s")]
    for digest in acceptance.kept():
        verdict = acceptance.read(digest)
        when = time.strftime("%F %T", time.localtime(verdict["at"])) if verdict else "never started"
        mark = " *" if digest == release.active() else ""
        rows.append((digest + mark, _profile(digest), verdict.get("verdict", "-"), when, _speed(verdict)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, "* active"] if len(rows) > 1 else ["no release is on this host"]


def _speed(verdict: dict[str, Any]) -> str:
    return ", ".join(f"{rate} at C={streams}" for streams, rate in (verdict.get("tok_s") or {}).items()) or "-"


def _profile(digest: str) -> str:
    try:
        return str(release.load(digest)["profile"])
    except (release.Damaged, KeyError):
        return "damaged"


def _release(active: str | None) -> str:
    if active is None:
        return "none is active"
    verdict = acceptance.read(active)
    judged = f"{verdict['verdict']} since {time.strftime('%F %T', time.localtime(verdict['at']))}" if verdict else "new"
    return f"{active} of profile {_profile(active)}: {judged}"


def _unit(unit: systemd.Unit) -> str:
    return f"{unit.name} {unit.active}/{unit.sub} since {unit.since or '-'}, pid {unit.main_pid or '-'}"


def _unit_problems(unit: systemd.Unit, active: str | None) -> list[str]:
    found = []
    if unit.active == "failed":
        found.append(f"{unit.name} failed ({unit.ended}): sglang-box logs --unit {unit.name}")
    if unit.restarts:
        found.append(f"{unit.name} was restarted {unit.restarts} times by systemd, the last time at {unit.since}")
    origin = started.read(unit.name)
    if unit.active == "active" and (origin is None or origin["release"] != active):
        found.append(
            f"{unit.name} runs from {origin['release'] if origin else 'an unknown release'}, not from {active}"
        )
    return found


def _drift(active: str | None) -> list[str]:
    if active is None:
        return []
    try:
        document = release.load(active)
    except release.Damaged as damage:
        return [str(damage)]
    wrong = [file["path"] for file in document["files"] if not release.is_right(Path(file["path"]), file)]
    return [f"{path} is not as the release has it: run the playbook" for path in wrong]


def _checkpoint(active: str | None) -> list[str]:
    try:
        problem = stamps.is_verified(Path(release.load(active)["checkpoint"]["folder"])) if active else None
    except release.Damaged:
        return []  # said by _drift
    return [f"checkpoint: {problem}: run the playbook"] if problem else []


def _worker_problems(active: str | None) -> list[str]:
    """What a router lacks of the workers that it should have; what it has serves meanwhile."""
    try:
        routers = release.routers(release.load(active)) if active else []
        return [problem for unit in routers for problem in _router_problems(unit)]
    except release.Damaged:  # said elsewhere
        return []


def _router_problems(unit: dict[str, Any]) -> list[str]:
    try:
        server = client.Server(release.base_url(unit))
        counts, unknown = router.healthy(server), router.missing(server, unit["workers"])
    except client.WrongAnswer as problem:
        return [f"{unit['name']} cannot say which workers it has: {problem}"]
    wanted = unit["checks"]["workers"]
    if counts == wanted:
        return []
    has = f"{unit['name']} has {router.counted(counts)} of {router.counted(wanted)} healthy workers"
    forgotten = [worker["url"] for worker in unknown]
    return [f"{has}; it has forgotten {', '.join(forgotten)}: sglang-box start" if forgotten else has]


def _cards() -> tuple[list[str], list[str]]:
    try:
        cards, uses = gpus.gpus(), gpus.uses_with_processes()
    except gpus.DriverError as error:
        return [], [f"GPUs cannot be seen: {error}"]
    lines = []
    for card in cards:
        holders = [
            f"pid {use.pid} ({process.unit if process else '?'})" for use, process in uses if use.pci == card.pci
        ]
        memory = f"{card.memory_used_mib}/{card.memory_total_mib} MiB"
        lines.append(f"GPU {card.index}    {card.pci}  {memory}  {', '.join(holders)}".rstrip())
    return lines, []


def _at_work() -> bool:
    return any(jobs.running(kind) for kind in ("activation", "start", "rollback", jobs.RECOVERY))
