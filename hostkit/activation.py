"""Takes the host from one release to another as a transaction: stop, prove, start, prove; or go back.

What served before is started again when the new release does not serve: a failure leaves the host as it was. Runs as
a transient unit under the host's lock; an intent on disk tells whoever comes after a power cut.
"""

import contextlib
from collections.abc import Collection
from typing import Any

from hostkit import acceptance, beside, credential, events, evict, gates, gpus, hold, intent, ours, release, stopping
from hostkit.events import Progress, Result, Verdict
from hostkit.proving import NotServing, Proof, answers, lacking, prove, runs, start

_AWAY_WITHIN_S = 15.0
_KNOWN = (NotServing, gates.NotMet, release.Damaged, gpus.DriverError, hold.Held)


def activate(request: dict[str, Any], progress: Progress) -> Result:
    """request: {"release": digest, "gates": mode, "attempt": n, "evict": [servers as the look reported them]}.

    The code of the result says what the host does now (hostkit/events.py).
    """
    wanted, targets = request["release"], request.get("evict", [])
    try:
        hold.refuse()
        new = release.load(wanted)
        driver, attempt = gpus.driver(), request.get("attempt", 1)
        mode = _mode(wanted, driver, request.get("gates", "auto"))
        ran = runs(new)
        keep = release.services(new) if ran else _right_already(new)
        credential.api_key(new)
        verdicts = _before_any_change(new, ran, progress, evict.leaving(targets))
        back_to = _back_to(wanted, bool(keep))
        intent.write(wanted, back_to, mode, attempt)
    except Exception as problem:  # whatever it is, nothing was changed yet
        return Result(events.REFUSED, f"refused, nothing was changed: {said(problem)}")
    try:
        verdicts += _evicted(new, targets, progress)
    except Exception as problem:
        intent.clear()
        gave_up = Result(events.FAILED, f"the eviction failed, our own server was not touched: {said(problem)}")
        return evict.told(gave_up, targets)
    try:
        proof = _proven_as_it_runs(new, mode, progress) if ran else _switched(new, mode, progress, verdicts, keep)
    except beside.NotMoved as problem:
        result = _not_moved(new["digest"], problem)
    except Exception as problem:  # a full disk leaves the release as little serving as a server that died
        result = _after_failure(new, back_to, keep if attempt == 1 else [], _as_failure(problem), progress)
    else:
        result = _judged(wanted, proof, verdicts, {"driver": driver, "gates": mode, "tok_s": proof.tok_s})
    with contextlib.suppress(OSError):
        intent.clear()
    with contextlib.suppress(Exception):  # what serves was judged: tidying up changes nothing of that
        acceptance.prune()
    return evict.told(result, targets)


def said(problem: Exception) -> str:
    return str(problem) if isinstance(problem, _KNOWN) else f"{type(problem).__name__}: {problem}"


def _as_failure(problem: Exception) -> NotServing:
    return problem if isinstance(problem, NotServing) else NotServing(said(problem), [], [])


def _mode(digest: str, driver: str, asked: str) -> str:
    """`auto` proves all of it where this release was never found good on this host with this driver."""
    if asked != "auto":
        return asked
    before = acceptance.read(digest)
    return "quick" if (before.get("verdict"), before.get("driver")) == (acceptance.GOOD, driver) else "full"


def _back_to(wanted: str, ran: bool) -> list[str]:
    """Where to go back to: what runs now, be it the wanted one itself (all or part of it), then what was last good."""
    active = release.active()
    running = [active] if active and stopping.running() else []
    known = [one for one in (*running, release.last_good()) if one and (one != wanted or ran)]
    return [one for one in dict.fromkeys(known) if release.is_whole(one)]


def _before_any_change(new: dict[str, Any], ran: bool, progress: Progress, leaving: gates.Leaving) -> list[Verdict]:
    """What can be known to fail is found while the old server still serves. Raises gates.NotMet."""
    own = ours.services()
    verdicts = [Verdict("checkpoint verified", True, gates.checkpoint_verified(new), 10)]
    for unit in new["units"]:
        if not ran:
            progress.tell("gates", "asking the engine's parser", unit=unit["name"])
            verdicts.append(Verdict("arguments accepted by the engine", True, gates.argv_accepted(new, unit), 180))
            verdicts.append(Verdict("kernels can be compiled", True, gates.compiler_works(new, unit), 180))
        if unit["gpus"]:
            held = gates.no_foreign_holder(unit["gpus"], own, leaving)
            verdicts.append(Verdict("GPUs held by nobody else", True, held, 30))
        free = gates.ports_free(release.ports(unit).values(), own, leaving)
        verdicts.append(Verdict("ports free", True, free, 10))
    progress.tell("gates", "; ".join(verdict.evidence for verdict in verdicts))
    return verdicts


def _evicted(new: dict[str, Any], targets: list[dict[str, Any]], progress: Progress) -> list[Verdict]:
    """Evict, and see that what was in the way stays away while our own server still serves. Raises gates.NotMet."""
    verdicts, own = evict.evict(targets, progress), ours.services()
    cards = [card for unit in new["units"] for card in unit["gpus"]]
    ports = [port for unit in new["units"] for port in release.ports(unit).values()]

    def away() -> str:
        return f"{gates.no_foreign_holder(cards, own)}; {gates.ports_free(ports, own)}"

    if targets:
        progress.tell("evict", gates.soon(away, _AWAY_WITHIN_S))
    return verdicts


def _proven_as_it_runs(new: dict[str, Any], mode: str, progress: Progress) -> Proof:
    """The right process runs already: its files are put right, and it is proven without a restart."""
    release.install(new)
    release.set_active(new["digest"])
    return prove(new, mode, progress)


def _switched(
    new: dict[str, Any], mode: str, progress: Progress, verdicts: list[Verdict], keep: Collection[str]
) -> Proof:
    """Stop what runs, prove the GPUs free, install, start, prove. Raises NotServing.

    Of a release that runs in part, what runs right goes on: one dead replica does not take down the other.
    """
    old = beside.old_one(new)
    if old:
        return beside.move(old, new, mode, progress)
    verdicts += _stopped_and_free(new, progress, keep)
    release.install(new)
    release.set_active(new["digest"])
    proof = start(new, mode, progress)
    if mode == "full" and not keep:
        proof = _started_once_more(new, proof, progress)
    return proof


def _right_already(new: dict[str, Any]) -> list[str]:
    """Services of the active release that need no start; none while another release is the active one."""
    if release.active() != new["digest"]:
        return []
    lacks = lacking(new)
    return [name for name in release.services(new) if name not in lacks]


def _stopped_and_free(target: dict[str, Any], progress: Progress, keep: Collection[str] = ()) -> list[Verdict]:
    verdicts = stopping.stop_all(progress, keep)
    cards = [pci for unit in target["units"] if f"{unit['name']}.service" not in keep for pci in unit["gpus"]]
    limit_s = release.gates(target["digest"])["gpus_free_within_s"]
    free = Verdict("GPUs free", True, gates.gpus_free(cards, limit_s), limit_s)
    progress.tell("gpus", free.evidence)
    return [*verdicts, free]


def _started_once_more(new: dict[str, Any], first: Proof, progress: Progress) -> Proof:
    """A release that comes up once and not again would fail at the next boot, with nobody watching."""
    progress.tell("start", "once more: a release must also come up a second time")
    verdicts = _stopped_and_free(new, progress)
    again = start(new, "quick", progress)
    return Proof([*first.verdicts, *verdicts, *again.verdicts], first.tok_s, first.accepted and again.accepted)


def _judged(digest: str, proof: Proof, verdicts: list[Verdict], figures: dict[str, Any]) -> Result:
    """What serves now is good, or answers right and yet falls short: then it is kept, and not accepted."""
    all_verdicts, short = [*verdicts, *proof.verdicts], proof.shortcomings()
    try:
        if figures["gates"] == "none":
            acceptance.note(digest, acceptance.UNPROVEN, "gates = none", **figures)
            message = f"release {digest} answers; nothing else was proven, as gates = none asked"
            return Result(events.OK, message, all_verdicts)
        if not proof.accepted:
            acceptance.note(digest, acceptance.NOT_ACCEPTED, short, **figures)
            message = f"release {digest} serves and is kept, but is not accepted: {short}"
            return Result(events.NOT_ACCEPTED, message, all_verdicts)
        release.mark_good(digest)
        acceptance.note(digest, acceptance.GOOD, **figures)
    except OSError as problem:
        message = f"release {digest} serves, but its verdict could not be kept ({problem}); mend that and run again"
        return Result(events.NOT_ACCEPTED, message, all_verdicts)
    return Result(events.OK, f"release {digest} serves", all_verdicts)


def _after_failure(
    new: dict[str, Any], back_to: list[str], ran: Collection[str], failure: NotServing, progress: Progress
) -> Result:
    """What `ran` before from this very release, and was to be completed or proven again, is never stopped for it."""
    whole = len(ran) == len(new["units"])
    if whole and runs(new):
        message = f"release {new['digest']} goes on running as before, but was not proven: {failure}"
        return Result(events.NOT_ACCEPTED, message, failure.verdicts, failure.excerpt)
    if ran and not whole and _answers_without_the_rest(new, ran, progress):
        message = f"release {new['digest']} goes on serving without {', '.join(lacking(new))}: {failure}"
        return Result(events.NOT_ACCEPTED, message, failure.verdicts, failure.excerpt)
    with contextlib.suppress(OSError):
        acceptance.note(new["digest"], acceptance.FAILED, str(failure))
    try:
        return go_back(new["digest"], back_to, failure, progress)
    except Exception as problem:
        message = f"release {new['digest']} does not serve: {failure}. Going back failed as well: {said(problem)}"
        return Result(events.STOPPED, message, failure.verdicts, failure.excerpt)


def _not_moved(wanted: str, problem: beside.NotMoved) -> Result:
    with contextlib.suppress(OSError):
        acceptance.note(wanted, acceptance.FAILED, str(problem.failure))
    message = f"release {wanted} does not serve: {problem}. Release {release.active()} serves as before"
    return Result(events.ROLLED_BACK, message, problem.failure.verdicts, problem.failure.excerpt)


def _answers_without_the_rest(new: dict[str, Any], ran: Collection[str], progress: Progress) -> bool:
    """What was to complete the release is stopped again, as it may answer wrong."""
    with contextlib.suppress(gates.NotMet):
        stopping.stop_all(progress, ran)
    return answers(new)


def go_back(wanted: str, back_to: list[str], failure: NotServing, progress: Progress) -> Result:
    """Start what served before again, the best first, or stay stopped and say so."""
    what = f"release {wanted} does not serve: {failure}"
    progress.tell("failed", what)
    verdicts, reasons = list(failure.verdicts), []
    for previous in back_to:
        progress.tell("rollback", f"starting {previous}, which served before")
        try:
            again = _start_again(release.load(previous), progress)
        except Exception as second:
            reasons.append(f"{previous} does not serve either: {said(second)}")
            verdicts += getattr(second, "verdicts", [])
            continue
        message = f"{what}. Release {previous} serves again"
        return Result(events.ROLLED_BACK, message, [*verdicts, *again.verdicts], failure.excerpt)
    state = _stay_stopped(wanted, progress)
    rest = "; ".join(reasons) or "There is no release that served before"
    return Result(events.STOPPED, f"{what}. {rest}. {state}", verdicts, failure.excerpt)


def _stay_stopped(wanted: str, progress: Progress) -> str:
    """Leave nothing running; in a sentence, how far that went, and what keeps the GPUs from the next start."""
    try:
        stopping.stop_all(progress)
    except Exception as problem:
        return f"The host could not be stopped: {said(problem)}"
    finally:
        release.set_inactive()
    try:
        cards = [pci for unit in release.load(wanted)["units"] for pci in unit["gpus"]]
        gates.gpus_free(cards, release.gates(wanted)["gpus_free_within_s"])
    except Exception as problem:
        return f"The host is stopped, and {said(problem)}"
    return "The host is stopped"


def _start_again(previous: dict[str, Any], progress: Progress) -> Proof:
    """Start what served before. Memory that nobody seems to hold does not keep it from trying; a process does."""
    try:
        _stopped_and_free(previous, progress)
    except gates.StillHeld:
        raise
    except (gates.NotMet, gpus.DriverError) as problem:
        progress.tell("gpus", f"not free, trying all the same: {problem}")
    release.install(previous)
    release.set_active(previous["digest"])
    return start(previous, "quick", progress)
