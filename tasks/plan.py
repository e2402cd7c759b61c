"""Makes the plan of a run, or refuses it before the first change with every reason at once."""

from functools import cache

from pyinfra import host, logger, state

from serving import refusals
from serving.plan import load_wanted, make_plan
from serving.problems import Refused
from serving.release import Release
from serving.site import load_site
from tasks import look

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


def _make() -> Release:
    site = load_site(host.data.dict())
    wanted = _wanted(site)
    release = Release(make_plan(wanted, look.inspect(site)))
    refusals.check(release.plan, release)
    for note in wanted.notes:
        logger.info(f"{host.print_prefix}{note}")
    return release
