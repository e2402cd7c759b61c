"""The API key: from the operator's file to a file of root's on the host, through standard input only."""

from serving import drift
from serving.plan import hostkit_path
from serving.release import Release
from tasks import bundle
from tasks.operations import secret_present
from tasks.step import step


@step("Credential")
def present(release: Release) -> None:
    """Beside those of earlier releases; one that no release needs any more goes when its last release is pruned."""
    key, difference = release.plan.wanted.api_key, drift.credential_differs(release, release.plan.state)
    if key and difference:
        name = f"Put {key.path_on_host} ({difference})"
        secret_present(name=name, hostkit=hostkit_path(bundle.digest()), secret=key)
