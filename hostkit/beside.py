"""Takes replicas to another release while they serve: new ones start beside them, and the router sends there instead.

Only where both releases have the same router and their workers nothing in common: no name, no port, no card. The
router's process goes on, so that no client's connection is cut; should it die, it is started with the new workers.
"""

import contextlib
import time
from typing import Any

from hostkit import client, gates, proving, release, router, started, stopping, systemd
from hostkit.events import Progress, Verdict
from hostkit.proving import NotServing, Proof

_MOVED_WITHIN_S = 120.0
_POLL_S = 0.1


class NotMoved(Exception):
    """The new release could not take over; the old one serves as before, and no request was lost."""

    def __init__(self, message: str, failure: NotServing) -> None:
        super().__init__(message)
        self.failure = failure


def old_one(new: dict[str, Any]) -> dict[str, Any] | None:
    """The active release, where the new one can start beside it; None where one has to stop for the other."""
    try:
        old = release.load(release.active() or "none")
    except release.Damaged:
        return None
    if old["digest"] == new["digest"] or not _same_router(old, new) or _share(old, new):
        return None
    names = {f"{unit['name']}.service" for unit in release.routers(old)}
    return None if names & set(proving.lacking(old)) else old


def _same_router(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """One each, that differ in nothing but the workers they send to."""
    said = [[_without_workers(unit) for unit in release.routers(one)] for one in (old, new)]
    return len(said[0]) == 1 and said[0] == said[1]


def _without_workers(unit: dict[str, Any]) -> dict[str, Any]:
    urls = {worker["url"] for worker in unit["workers"]}
    kept = {key: value for key, value in unit.items() if key not in ("workers", "after", "checks")}
    return {**kept, "argv": [word for word in unit["argv"] if word not in urls]}


def _share(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the workers of both need a name, a port or a card; prefill and decode always meet at the same ports."""
    needs = [
        {need for unit in release.workers(one) for need in (unit["name"], *release.ports(unit).values(), *unit["gpus"])}
        for one in (old, new)
    ]
    return bool(needs[0] & needs[1])


def move(old: dict[str, Any], new: dict[str, Any], mode: str, progress: Progress) -> Proof:
    """Start the new workers, prove them, have the router send to them, stop the old ones. Raises NotMoved.

    There is no second start, not even in mode `full`: it would need the old workers to stop first.
    """
    kept = [f"{unit['name']}.service" for unit in release.workers(old)]
    try:
        cards = [pci for unit in new["units"] for pci in unit["gpus"]]
        progress.tell("gpus", gates.gpus_free(cards, release.gates(new["digest"])["gpus_free_within_s"]))
        release.install(new, beside=kept)
        release.set_active(new["digest"])
        proof = proving.start(new, mode, progress, before_routers=lambda: _hand_over(new, progress))
    except Exception as problem:
        failure = problem if isinstance(problem, NotServing) else NotServing(f"{problem}", [], [])
        raise _moved_back(old, new, failure, progress) from None
    progress.tell("stop", f"stopping {', '.join(kept)}, which the router sends nothing to any more")
    return _without_the_old(new, proof, progress)


def _without_the_old(new: dict[str, Any], proof: Proof, progress: Progress) -> Proof:
    """Old workers that cannot be stopped take down nothing that serves: it is said, and not accepted."""
    for does in (lambda: stopping.stop_all(progress, keep=release.services(new)), lambda: release.install(new)):
        try:
            proof.verdicts += does() or []
        except Exception as problem:  # whatever it is, the new ones serve
            proof.verdicts.append(Verdict("old workers stopped and removed", False, str(problem), 0))
            proof.accepted = False
    return proof


def _hand_over(target: dict[str, Any], progress: Progress) -> None:
    """Have the router send to the target's workers alone, and note that it is the target's. Raises WrongAnswer."""
    [unit] = release.routers(target)
    service, server = f"{unit['name']}.service", client.Server(release.base_url(unit))
    urls = {worker["url"] for worker in unit["workers"]}
    deadline = time.monotonic() + _MOVED_WITHIN_S
    while not _sends_to(server, urls):
        if time.monotonic() > deadline:
            raise client.WrongAnswer(f"the router did not take {', '.join(sorted(urls))}")
        with contextlib.suppress(client.WrongAnswer):  # it may be starting anew
            router.send_to(server, unit["workers"])
        time.sleep(_POLL_S)
    started.note(service, systemd.show(service)[service].invocation_id)
    progress.tell("router", f"{unit['name']} sends to {', '.join(worker['name'] for worker in unit['workers'])}")


def _sends_to(server: client.Server, urls: set[str]) -> bool:
    try:
        return {worker["url"] for worker in router.known(server)} == urls
    except client.WrongAnswer:
        return False


def _moved_back(old: dict[str, Any], new: dict[str, Any], failure: NotServing, progress: Progress) -> NotMoved:
    """The old workers run all the while: the router sends to them again, then what is new is stopped and taken away."""
    progress.tell("rollback", f"{new['digest']} does not serve; {old['digest']} served all the while")
    release.set_active(old["digest"])
    release.install(old, beside=[f"{unit['name']}.service" for unit in release.workers(new)])
    with contextlib.suppress(client.WrongAnswer):
        _hand_over(old, progress)
    with contextlib.suppress(gates.NotMet):
        stopping.stop_all(progress, keep=release.services(old))
    release.install(old)
    return NotMoved(str(failure), failure)
