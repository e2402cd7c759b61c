"""The checkpoint: fetched, every byte checked against its manifest once, then trusted while no file changes."""

from pyinfra.operations import files

from serving import drift, fetching, paths
from serving.plan import Plan, hostkit_path
from serving.release import Release
from tasks import bundle
from tasks.operations import job_done, manifest_brought_back, secret_present
from tasks.step import step


@step("Checkpoint")
def present(release: Release) -> None:
    plan = release.plan
    on_host = fetching.on_host(plan)
    _token(release)
    if on_host.checked and not plan.wanted.site.deep:
        return
    hostkit = hostkit_path(bundle.digest())
    job_done(name=_name(plan, on_host), hostkit=hostkit, kind="checkpoint", request=_request(plan))
    if plan.wanted.checkpoint.files is None:
        manifest_brought_back(
            name=f"Write the manifest of {plan.wanted.profile.checkpoint} here, to be committed",
            hostkit=hostkit,
            folder=plan.checkpoint_folder,
            checkpoint=plan.wanted.profile.checkpoint,
        )


def _name(plan: Plan, on_host: fetching.OnHost) -> str:
    """What it will cost, said before it begins."""
    checkpoint = plan.wanted.checkpoint
    what = f"{checkpoint.repository}@{checkpoint.revision}"
    if not on_host.missing:
        return f"Check {what}: {checkpoint.size_gb} GB, every byte"
    there = f", {_shown(on_host.begun)} of it are there" if on_host.begun else ""
    places = [*(["folders of this host"] if plan.wanted.site.adopt else []), *plan.wanted.site.sources]
    return f"Fetch {what}: {_shown(on_host.missing)} from {', '.join(places)}{there}"


def _shown(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _request(plan: Plan) -> dict[str, object]:
    site, checkpoint = plan.wanted.site, plan.wanted.checkpoint
    return {
        "runs_under": f"{plan.engine_folder}/bin/python",  # it has requests
        "folder": plan.checkpoint_folder,
        "repository": checkpoint.repository,
        "revision": checkpoint.revision,
        "files": checkpoint.wanted_files,
        "sources": site.sources,
        "adopt": site.adopt,
        "token_file": paths.HUB_TOKEN if plan.wanted.hub_token else None,
        "streams": site.fetch_streams,
        "deep": site.deep,
    }


def _token(release: Release) -> None:
    """From the operator's file to a file of root's, through standard input; away with it when it is no longer named."""
    token, difference = release.plan.wanted.hub_token, drift.hub_token_differs(release, release.plan.state)
    path = paths.HUB_TOKEN
    if difference and token:
        secret_present(name=f"Put {path} ({difference})", hostkit=hostkit_path(bundle.digest()), secret=token)
    elif difference:
        files.file(name=f"Remove {path} ({difference})", path=path, present=False)
