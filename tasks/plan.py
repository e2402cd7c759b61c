"""Makes the plan of a run, or refuses it before the first change with every reason at once."""

from pyinfra import host, logger
from pyinfra.api import DeployError

from serving import refusals
from serving.plan import load_wanted, make_plan
from serving.problems import Refused
from serving.release import Release
from serving.site import load_site
from tasks import look


def make() -> Release:
    """The release to serve on this host. Raises DeployError, which ends the run for all hosts unchanged."""
    try:
        site = load_site(host.data.dict())
        wanted = load_wanted(site)
        state = look.inspect(site)
        release = Release(make_plan(wanted, state))
        refusals.check(release.plan, release)
    except Refused as refusal:
        raise DeployError(f"{host.name}: {refusal}") from None
    for note in wanted.notes:
        logger.info(f"{host.print_prefix}{note}")
    return release
