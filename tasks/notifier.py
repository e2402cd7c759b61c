"""Who is told when a server fails: from the settings to a file of root's on the host, through standard input."""

from pyinfra.operations import files

from serving import drift, paths
from serving.plan import hostkit_path
from serving.release import Release
from tasks import bundle
from tasks.operations import secret_present
from tasks.step import step


@step("Notifier")
def set_up(release: Release) -> None:
    """No part of the release: the unit that tells reads the file when a server fails."""
    notify, difference = release.plan.wanted.site.notify, drift.notify_differs(release, release.plan.state)
    path = paths.NOTIFY
    if difference and notify:
        secret_present(name=f"Put {path} ({difference})", hostkit=hostkit_path(bundle.digest()), secret=notify)
    elif difference:
        files.file(name=f"Remove {path} ({difference})", path=path, present=False)
