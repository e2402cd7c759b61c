"""The API key: from the operator's file to a file of root's on the host, through standard input only."""

from pyinfra.operations import files

from serving import drift
from serving.plan import hostkit_path
from serving.release import Release
from serving.secret import ApiKey
from tasks import bundle
from tasks.operations import secret_present
from tasks.step import step


@step("Credential")
def present(release: Release) -> None:
    key, difference = release.plan.wanted.api_key, drift.credential_differs(release, release.plan.state)
    if key and difference:
        name = f"Put {ApiKey.path_on_host} ({difference})"
        secret_present(name=name, hostkit=hostkit_path(bundle.digest()), secret=key)


@step("Credential")
def gone(release: Release) -> None:
    """After the activation: until then the running server may need it to start again."""
    if release.plan.wanted.api_key is None and drift.credential_differs(release, release.plan.state):
        files.file(name=f"Remove {ApiKey.path_on_host} (no longer used)", path=ApiKey.path_on_host, present=False)
