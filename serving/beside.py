"""Side by side where there is room: new replicas on cards that those in use leave free, behind the same router.

The host starts them there, proves them, has the router send to them instead, and stops the old ones: no client sees it.
A release has two places for that. Which one is read off the host: the one that is active, else the one that is free.
"""

from serving import topology
from serving.plan import Plan, Wanted, make_plan
from serving.release import Release
from serving.schemas import HostState

ROUTER, REPLICA = "sglang-router.service", "sglang-replica-"


def release(wanted: Wanted, state: HostState) -> Release:
    """The release to serve on this host, at one of its two places."""
    first = Release(make_plan(wanted, state))
    if not _has_a_second_place(wanted) or first.digest == state.active:
        return first
    second = Release(make_plan(wanted, state, beside=True))
    if second.digest == state.active or (_is_free(second.plan) and not _is_free(first.plan) and _replicas_serve(state)):
        return second
    return first


def moves(release: Release) -> bool:
    """Whether this release's workers can start while the active one's serve."""
    state = release.plan.state
    other = state.active not in (None, release.digest)
    return _has_a_second_place(release.plan.wanted) and other and _replicas_serve(state) and _is_free(release.plan)


def _has_a_second_place(wanted: Wanted) -> bool:
    """Prefill and decode meet at ports that the profile names; one server has no router that could send elsewhere."""
    return wanted.profile.topology == "replicas" and wanted.profile.workers <= topology.BESIDE


def _replicas_serve(state: HostState) -> bool:
    """Whether there is a router that now sends to replicas; one of prefill and decode cannot send to them."""
    active = {name for name, unit in state.units.items() if unit.active == "active"}
    return ROUTER in active and any(name.startswith(REPLICA) for name in active)


def _is_free(plan: Plan) -> bool:
    """Whether there are cards for all workers, and none of them, nor a name, is in use by what serves now."""
    in_use = {use.pci for use in plan.state.gpu_uses}
    running = {name for name, unit in plan.state.units.items() if unit.active != "inactive"}
    return all(
        len(unit.gpus) == plan.wanted.profile.gpus
        and not in_use & {gpu.pci for gpu in unit.gpus}
        and unit.service not in running
        for unit in plan.workers
    )
