"""The engines: each a locked environment in a folder of its own, beside its predecessors."""

from serving import drift
from serving.engine import EngineOnHost
from serving.paths import ENGINES, INSTALLER
from serving.plan import GROUP_DATA, Plan, hostkit_path
from serving.release import Release
from tasks import bundle, put
from tasks.operations import job_done
from tasks.step import step

UV_LOCK = GROUP_DATA / "engines" / "uv.requirements.lock"


@step("Engine")
def installed(release: Release) -> None:
    """What the plan needs: the servers' engine, and the router's where there is a router."""
    state = release.plan.state
    missing = [engine for engine in release.plan.engines if drift.engine_missing(engine, state)]
    if missing:
        put.where_different(
            state, f"{INSTALLER}/uv.lock", UV_LOCK.read_bytes(), "644", "Put the lock of uv onto the host"
        )
    for engine in missing:
        _install(release.plan, engine)


def _install(plan: Plan, engine: EngineOnHost) -> None:
    damage = drift.engine_damage(engine, plan.state)
    cost = f"{engine.data.download_gb} GB to fetch, {engine.data.installed_gb} GB on disk"
    why = f"changed since its installation: {', '.join(damage)}" if damage else "not installed"
    lock = f"{ENGINES}/{engine.digest}.lock"
    put.where_different(plan.state, lock, engine.engine.lock, "644", f"Put the lock of {engine.name} onto the host")
    job_done(
        name=f"Install {engine.name} ({why}): {cost}",
        hostkit=hostkit_path(bundle.digest()),
        kind="engine",
        request={
            "digest": engine.digest,
            "lock": lock,
            "uv_lock": f"{INSTALLER}/uv.lock",
            "python": plan.state.pythons[engine.python],
            "find_links": plan.wanted.site.find_links,
            "installed_gb": engine.data.installed_gb,
            "package": engine.data.package,
            "versions": engine.data.versions,
        },
    )
