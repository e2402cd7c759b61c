"""Makes the plan of a run, or refuses it before the first change with every reason at once."""

from functools import cache

from pyinfra import host, logger, state

from serving import beside, refusals, unmanaged
from serving.plan import load_wanted
from serving.problems import Refused
from serving.release import Release
from serving.site import Site, load_site
from tasks import look, servers

# Hosts with the same settings share what the files say: it is read once a run.
_wanted = cache(load_wanted)


def make() -> Release | None:
    """The release to serve on this host; None, and the host counts as failed, where it is refused.

    Other hosts go on: each has a plan of its own.
    """
    try:
        return _make()
    except Refused as refusal:
        refuse(refusal)
        return None


def refuse(refusal: Refused) -> None:
    """Say every reason, and count this host as failed."""
    for line in str(refusal).splitlines():
        logger.error(f"{host.print_prefix}{line}")
    state.fail_hosts({host})


def settings() -> Site:
    """What the files say for this host, and the command line. Raises Refused."""
    return load_site(host.data.dict(), state.inventory.get_override_data())


def _make() -> Release:
    site = settings()
    wanted = _wanted(site)
    release = beside.release(wanted, look.inspect(site))
    title = "to be evicted in this run" if site.evict else "in the way, and not started by this playbook"
    servers.show(title, unmanaged.in_the_way(release.plan), release.plan.state)
    refusals.check(release.plan, release)
    for note in release.plan.notes:
        logger.info(f"{host.print_prefix}{note}")
    return release
