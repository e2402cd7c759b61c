"""What `sglang-box` says to the operator at the console.

Each command loads what it alone needs: `ask` is part of every run of the playbook.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def ask(within_s: float, question: dict[str, Any] | None) -> dict[str, Any]:
    """One real question: {"ok", "message"} and the answer's figures.

    question: {"base", "model", "credential", "gates"}; without it, what the active release would be asked.
    """
    from hostkit import client, credential

    try:
        asked = question or _question_of_the_active_release()
        server = client.Server(asked["base"], credential.api_key(asked))
        answer = client.ask(server, asked["model"], asked["gates"], within_s)
    except (client.WrongAnswer, OSError) as problem:
        return {"ok": False, "message": str(problem)}
    message = f"{asked['gates']['question']} -> {answer.text.strip()}"
    return {"ok": True, "message": message, "total_s": answer.total_s, "tokens": answer.tokens}


def _question_of_the_active_release() -> dict[str, Any]:
    """Raises OSError where there is none, or none that can be read."""
    from hostkit import release

    digest = release.active()
    if digest is None:
        raise OSError("no release is active on this host")
    try:
        document = release.load(digest)
    except release.Damaged as damage:
        raise OSError(str(damage)) from None
    return {
        "base": release.base_url(document["units"][-1]),
        "model": document["served_model_name"],
        "credential": document["credential"],
        "gates": release.gates(digest),
    }


def inspect(request: str) -> str:
    from hostkit import inspection

    began = time.monotonic()
    document = inspection.inspect(json.loads(request))
    return json.dumps({**document, "took_s": round(time.monotonic() - began, 3)})


def status() -> int:
    """Print what serves in one look; 0 when it answers right and nothing is amiss."""
    from hostkit import overview

    lines, problems = overview.look()
    print("\n".join([*lines, *(f"PROBLEM  {problem}" for problem in problems)]))
    return 1 if problems else 0


def releases() -> int:
    from hostkit import overview

    print("\n".join(overview.releases()))
    return 0


def checkpoints(models: list[str], going: list[str]) -> int:
    """Print which checkpoints there are, or remove those named."""
    from hostkit import events, revisions

    folders = models or [str(revisions.USUAL)]
    if going:
        return work("checkpoints", {"models": folders, "remove": going})
    try:
        print("\n".join(revisions.lines(map(Path, folders))))
    except revisions.Unsure as problem:
        print(problem, file=sys.stderr)
        return events.REFUSED
    return 0


def work(kind: str, request: dict[str, Any]) -> int:
    """Start the job or join it, show what it does, and end with its code. It goes on when this is interrupted."""
    from hostkit import events, jobs
    from hostkit import work as kinds

    try:
        job = jobs.start(kind, request, by=who(), after=kinds.after(kind))
    except jobs.Locked as locked:
        print(locked, file=sys.stderr)
        return events.LOCKED
    try:
        seen = _followed(kind, job)
    except KeyboardInterrupt:
        print(f"\nit goes on without you: journalctl -fu {jobs.unit(kind)}", file=sys.stderr)
        return 130
    for line in seen["result"]["excerpt"]:
        print(f"  | {line}")
    print(seen["result"]["message"])
    return int(seen["result"]["code"])


def _followed(kind: str, job: str) -> dict[str, Any]:
    """Show what the job does until it has a result."""
    from hostkit import jobs

    seen: dict[str, Any] = {"next": 0, "result": None}
    while seen["result"] is None:
        seen = jobs.follow(kind, job, seen["next"], wait_s=5.0)
        for event in seen["events"]:
            eta = f", about {event['eta_s']:.0f} s left" if event["eta_s"] else ""
            print(f"{event['elapsed_s']:6.1f} s  {event['stage']}: {event['message']}{eta}", flush=True)
    return seen


def check() -> int:
    """Every byte of the active release's checkpoint; it goes on when this is interrupted."""
    from hostkit import events, jobs, release

    try:
        folder = release.load(release.active() or "")["checkpoint"]["folder"]
    except release.Damaged as damage:
        print(damage, file=sys.stderr)
        return events.REFUSED
    return work(jobs.CHECK, {"folder": folder})


def install(digest: str) -> int:
    """Put the files of the release that runs into /etc; refused when another one runs by now."""
    from hostkit import events, jobs, proving, release

    try:
        with jobs.host_lock("install", who()):
            document = release.load(digest)
            if not proving.runs(document):
                raise release.Damaged(f"{digest} is no longer what runs: another run changed it meanwhile, run again")
            release.install(document)
            release.set_active(digest)
    except (jobs.Locked, release.Damaged, OSError) as problem:
        print(problem, file=sys.stderr)
        return events.LOCKED if isinstance(problem, jobs.Locked) else events.REFUSED
    return 0


def hold(why: str | None) -> int:
    return work("hold", {"by": who(), "why": why or "no reason given"})


def let_go() -> int:
    from hostkit import hold as holds

    held = holds.read()
    holds.let_go()
    print(f"was {holds.describe(held)}; `sglang-box start` starts it" if held else "the host was not held")
    return 0


def who() -> str:
    return f"{os.environ.get('SUDO_USER') or os.environ.get('USER') or 'root'} at the console"
