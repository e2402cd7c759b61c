"""After an activation that was cut off, by a power cut or by the end of its process: what served before serves again.

Where nothing served before, the activation is tried once more. Started by the boot unit and by a job's ExecStopPost.
"""

import contextlib
from typing import Any

from hostkit import acceptance, events, hold, intent, jobs, paths, release, stopping, systemd
from hostkit.activation import activate, go_back
from hostkit.events import Progress, Result
from hostkit.proving import NotServing, prove, runs

_ATTEMPTS = 2


def begin() -> None:
    """Does nothing without an intent. After a boot it also sees to it that systemd starts what served before."""
    found = intent.read()
    if found is None:
        return
    if not intent.is_of_this_boot(found):
        with contextlib.suppress(Exception):  # the job tries it again, and says what is wrong
            _have_started_at_boot(found)
    jobs.start(jobs.RECOVERY, {}, by="the host itself")


def _have_started_at_boot(found: dict[str, Any]) -> None:
    """Put the files in place before systemd starts the units, which wait for the boot unit."""
    with jobs.host_lock("boot"):
        for previous in filter(release.is_whole, found["back_to"]):
            release.install(release.load(previous))
            release.set_active(previous)
            return


def recover(request: dict[str, Any], progress: Progress) -> Result:
    """request: nothing; the intent on disk says what was under way."""
    found = intent.read()
    if found is None:
        return Result(events.OK, "nothing was cut off")
    result = _recovered(found, progress)
    intent.clear()
    return result


def _recovered(found: dict[str, Any], progress: Progress) -> Result:
    wanted, held = found["to"], hold.read()
    if held:
        return Result(events.OK, f"the activation of {wanted} was cut off; the host is {hold.describe(held)}")
    if not intent.is_of_this_boot(found):  # systemd starts it anyway: what comes up is watched, and not stopped
        systemd.run("systemctl", "start", paths.TARGET, timeout_s=300, check=False)
    if _was_decided(found):
        return Result(events.OK, f"the activation of {wanted} had ended, and its verdict stands")
    back_to = list(filter(release.is_whole, found["back_to"]))
    if not back_to and found["attempt"] < _ATTEMPTS and release.is_whole(wanted):
        progress.tell("recovery", f"the activation of {wanted} was cut off and nothing served before: once more")
        return activate({"release": wanted, "gates": found["gates"], "attempt": found["attempt"] + 1}, progress)
    cut_off = NotServing("its activation was cut off", [], [])
    if wanted not in back_to:
        with contextlib.suppress(OSError):
            acceptance.note(wanted, acceptance.INTERRUPTED, str(cut_off))
    if back_to and runs(release.load(back_to[0])):
        return _watched(wanted, back_to, cut_off, progress)
    return go_back(wanted, back_to, cut_off, progress)


def _was_decided(found: dict[str, Any]) -> bool:
    """Whether only the end of the intent is missing: the verdict was kept, and what it is on runs."""
    verdict = acceptance.read(found["to"])
    judged = verdict.get("verdict") in (acceptance.GOOD, acceptance.NOT_ACCEPTED, acceptance.UNPROVEN)
    if not judged or verdict["at"] < found["since"] or not release.is_whole(found["to"]):
        return False
    return runs(release.load(found["to"]))


def _watched(wanted: str, back_to: list[str], cut_off: NotServing, progress: Progress) -> Result:
    """What served before runs: untouched, or started by systemd after the boot. It is proven, not stopped for it."""
    previous = release.load(back_to[0])
    progress.tell("recovery", f"the activation of {wanted} was cut off; {back_to[0]}, which served before, runs")
    release.install(previous)
    release.set_active(back_to[0])
    try:
        proof = prove(previous, "quick", progress)
    except NotServing as problem:
        if stopping.running():  # systemd goes on trying
            message = f"{back_to[0]}, which served before, runs, but was not proven: {problem}"
            return Result(events.NOT_ACCEPTED, message, problem.verdicts, problem.excerpt)
        return go_back(wanted, back_to[1:], cut_off, progress)
    message = f"the activation of {wanted} was cut off; release {back_to[0]} serves. Run the playbook to try again"
    return Result(events.ROLLED_BACK, message, proof.verdicts)
