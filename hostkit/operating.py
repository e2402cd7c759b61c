"""Jobs that an operator asks for: stop, hold, start, and back to an earlier release."""

from dataclasses import replace
from typing import Any

from hostkit import acceptance, events, gates, gpus, ours, release, stopping
from hostkit import hold as holds
from hostkit.activation import activate
from hostkit.events import Progress, Result

_GPUS_FREE_WITHIN_S = 90


def stop(request: dict[str, Any], progress: Progress) -> Result:
    """request: nothing. Everything that the playbook started is stopped, and its GPUs are shown to be free."""
    units = stopping.running()
    known = ours.units()
    cards = [pci for unit in units for pci in known.get(unit.name, {}).get("gpus", [])]
    try:
        verdicts = stopping.stop_all(progress)
        free = gates.gpus_free(cards, _GPUS_FREE_WITHIN_S) if cards else "no GPU was in use"
    except (gates.NotMet, gpus.DriverError) as problem:
        return Result(events.STOPPED, f"stopped, but: {problem}")
    if not units:
        return Result(events.OK, "nothing ran")
    return Result(events.OK, f"stopped {', '.join(unit.name for unit in units)}; {free}", verdicts)


def hold(request: dict[str, Any], progress: Progress) -> Result:
    """request: {"by", "why"}. Held first, so that nobody starts it between the stop and the hold."""
    held = holds.read()
    if held and (held["by"], held["why"]) != (request["by"], request["why"]):
        return Result(events.REFUSED, f"the host is {holds.describe(held)}; that hold stays")
    holds.put(request["by"], request["why"])
    result = stop(request, progress)
    return replace(result, message=f"held by {request['by']}: {request['why']}. {result.message}")


def start(request: dict[str, Any], progress: Progress) -> Result:
    """request: nothing. The active release serves (or the last good one), proven."""
    digest = release.active() or release.last_good()
    if digest is None:
        return Result(events.REFUSED, "no release is on this host yet: run the playbook")
    return activate({"release": digest}, progress)


def roll_back(request: dict[str, Any], progress: Progress) -> Result:
    """request: {"release": digest, or null for the one that was found good before the active one}."""
    wanted = request.get("release") or acceptance.newest_good(release.active())
    if wanted is None:
        return Result(events.REFUSED, "there is no other release that was found good on this host")
    if wanted not in acceptance.kept():
        kept = ", ".join(acceptance.kept()) or "none"
        return Result(events.REFUSED, f"release {wanted} is not on this host; there are: {kept}")
    return activate({"release": wanted}, progress)
