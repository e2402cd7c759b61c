"""The engines: each a locked environment in a folder of its own, beside its predecessors."""

from typing import Any

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
    plan = release.plan
    missing = [engine for engine in plan.engines if drift.engine_missing(engine, plan.state)]
    wanted = plan.engines if plan.wanted.site.deep else missing
    if wanted:
        put.where_different(
            plan.state, f"{INSTALLER}/uv.lock", UV_LOCK.read_bytes(), "644", "Put the lock of uv onto the host"
        )
    for engine in wanted:
        _put_parts(plan, engine)
        job_done(
            name=_install(plan, engine) if engine in missing else _check(engine),
            hostkit=hostkit_path(bundle.digest()),
            kind="engine",
            request=_request(plan, engine),
        )


def _install(plan: Plan, engine: EngineOnHost) -> str:
    damage = drift.engine_damage(engine, plan.state)
    cost = f"{engine.data.download_gb} GB to fetch, {engine.data.installed_gb} GB on disk"
    why = f"changed since its installation: {', '.join(damage)}" if damage else "not installed"
    return f"Install {engine.name} ({why}): {cost}"


def _check(engine: EngineOnHost) -> str:
    return f"Check every file of {engine.name}: {engine.data.installed_gb} GB to read; what was edited is replaced"


def _put_parts(plan: Plan, engine: EngineOnHost) -> None:
    """Its lock, its patches and those of its wheels that lie here."""
    found, patches = plan.state, engine.engine.patches.document
    put.where_different(found, _lock(engine), engine.engine.lock, "644", f"Put the lock of {engine.name} onto the host")
    if patches:
        put.where_different(found, _patches(engine), patches, "644", f"Put the patches of {engine.name} onto the host")
    for wheel in engine.data.wheels:
        if wheel.file:
            content, name = engine.engine.wheel(wheel), f"Put the wheel {wheel.file} onto the host"
            put.where_different(found, wheel.path_on_host, content, "644", name)


def _request(plan: Plan, engine: EngineOnHost) -> dict[str, Any]:
    site = plan.wanted.site
    return {
        "digest": engine.digest,
        "lock": _lock(engine),
        "uv_lock": f"{INSTALLER}/uv.lock",
        "python": plan.state.pythons[engine.python],
        "find_links": site.find_links,
        "bundle": site.bundle,
        "installed_gb": engine.data.installed_gb,
        "package": engine.data.package,
        "versions": engine.data.versions,
        "checks": engine.data.checks.model_dump(),
        "cuda_toolkit": engine.data.cuda_toolkit,
        "patches": _patches(engine) if engine.engine.patches.texts else None,
        "deep": site.deep,
    }


def _lock(engine: EngineOnHost) -> str:
    return f"{ENGINES}/{engine.digest}.lock"


def _patches(engine: EngineOnHost) -> str:
    return f"{ENGINES}/{engine.digest}.patches"
