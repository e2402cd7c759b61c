"""The checkpoint: every byte checked against its manifest once, then trusted while no file changes."""

from serving.plan import hostkit_path
from serving.release import Release
from tasks import bundle
from tasks.operations import job_done
from tasks.step import step


@step("Checkpoint")
def verified(release: Release) -> None:
    plan, checkpoint = release.plan, release.plan.wanted.checkpoint
    wanted = checkpoint.files or {}
    found = plan.state.checkpoints.get(plan.checkpoint_folder, {"files": {}, "stamp": None})
    stamp = found["stamp"] or {}
    if all(stamp.get("files", {}).get(name) == found["files"].get(name) for name in wanted):
        return
    job_done(
        name=f"Check {checkpoint.repository}@{checkpoint.revision}: {checkpoint.size_gb} GB, every byte",
        hostkit=hostkit_path(bundle.digest()),
        kind="checkpoint",
        request={
            "folder": plan.checkpoint_folder,
            "repository": checkpoint.repository,
            "revision": checkpoint.revision,
            "files": {name: file.model_dump() for name, file in wanted.items()},
        },
    )
