"""The engine: the locked environment in a folder of its own, beside its predecessors."""

from serving import drift
from serving.paths import ENGINES, INSTALLER
from serving.plan import GROUP_DATA, hostkit_path
from serving.release import Release
from tasks import bundle, put
from tasks.operations import job_done
from tasks.step import step

UV_LOCK = GROUP_DATA / "engines" / "uv.requirements.lock"


@step("Engine")
def installed(release: Release) -> None:
    plan = release.plan
    damage = drift.engine_damage(release, plan.state)
    if plan.engine_digest in plan.state.engines and not damage:
        return
    engine = plan.wanted.engine
    cost = f"{engine.data.download_gb} GB to fetch, {engine.data.installed_gb} GB on disk"
    why = f"changed since its installation: {', '.join(damage)}" if damage else "not installed"
    lock, uv_lock = f"{ENGINES}/{plan.engine_digest}.lock", f"{INSTALLER}/uv.lock"
    put.where_different(plan.state, lock, engine.lock, "644", f"Put the lock of {engine.name} onto the host")
    put.where_different(plan.state, uv_lock, UV_LOCK.read_bytes(), "644", "Put the lock of uv onto the host")
    job_done(
        name=f"Install {engine.name} ({why}): {cost}",
        hostkit=hostkit_path(bundle.digest()),
        kind="engine",
        request={
            "digest": plan.engine_digest,
            "lock": lock,
            "uv_lock": uv_lock,
            "python": plan.state.pythons[plan.python],
            "find_links": plan.wanted.site.find_links,
            "installed_gb": engine.data.installed_gb,
            "package": engine.data.package,
            "versions": engine.data.versions,
        },
    )
