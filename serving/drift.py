"""What on a host differs from a release: what has to be put right, and which processes have to start anew.

Both are read off the host. A process that was started from exactly this release is right, whatever happened to the
files beside it since; those are put right without it.
"""

import hashlib
from collections.abc import Iterator

from serving import paths
from serving.engine import EngineOnHost
from serving.release import Release, ReleaseFile, without_comments
from serving.schemas import File, HostState, UnitState
from serving.secret import Secret
from serving.unit import Unit

# Kinds of jobs on the host that may change what serves.
ACTIVATING = {"activation", "start", "stop", "hold", "rollback", "recovery"}


def to_put_right(release: Release, state: HostState) -> list[str]:
    """Every difference that is mended without a restart, as "what: how it differs"."""
    return [*_files(release, state), *_drop_ins(release, state), *_units(release, state), *_links(release, state)]


def to_start(release: Release, state: HostState) -> list[str]:
    """Services whose process does not run, was not started from exactly this release, or holds on to such a one."""
    wrong = {unit.service for unit in release.plan.units if not _runs(release, unit, state)}
    return [unit.service for unit in release.plan.units if unit.service in wrong or wrong & set(unit.part_of)]


def is_proven(release: Release, state: HostState) -> bool:
    """Whether this release has climbed the ladder on this host. While that is being decided nothing has."""
    under_way = ACTIVATING & set(state.jobs) or state.intent
    return state.last_good == release.digest and not under_way


def credential_differs(release: Release, state: HostState) -> str | None:
    """How the credential on the host differs from the operator's key, None where it does not."""
    key = release.plan.wanted.api_key
    return _differs(key, state.files.get(key.path_on_host)) if key else None


def notify_differs(release: Release, state: HostState) -> str | None:
    """How the host's notifier differs from the operator's setting, None where it does not."""
    return _setting_differs(release.plan.wanted.site.notify, state.files.get(paths.NOTIFY))


def hub_token_differs(release: Release, state: HostState) -> str | None:
    """How the token on the host differs from the operator's, None where it does not."""
    return _setting_differs(release.plan.wanted.hub_token, state.files.get(paths.HUB_TOKEN))


def _setting_differs(wanted: Secret | None, found: File | None) -> str | None:
    if wanted is None:
        return "no longer used" if found else None
    return _differs(wanted, found)


def _differs(wanted: Secret, found: File | None) -> str | None:
    if found is None:
        return "missing"
    if found.sha256 != wanted.sha256:
        return "another content"
    right = (found.type, found.mode, found.owner) == ("file", "600", "root")
    return None if right else f"mode {found.mode}, owner {found.owner}"


def engine_damage(engine: EngineOnHost, state: HostState) -> list[str]:
    """Folders of the installed engine that changed since its installation (the first few)."""
    found = state.engines.get(engine.digest)
    return list(found["changed"]) if found else []


def engine_missing(engine: EngineOnHost, state: HostState) -> bool:
    """Whether it has to be installed: it is not there, or was changed since."""
    return engine.digest not in state.engines or bool(engine_damage(engine, state))


def _files(release: Release, state: HostState) -> Iterator[str]:
    for file in release.files:
        found = state.files.get(file.path)
        if found is None:
            yield f"{file.path}: missing"
        elif found.type != "file":
            yield f"{file.path}: a {found.type}" + (f" to {found.target}" if found.target else "")
        elif found.sha256 != file.sha256:
            yield f"{file.path}: edited"
        elif found.mode != file.mode:
            yield f"{file.path}: mode {found.mode} instead of {file.mode}"
        elif (found.owner, found.group) != ("root", "root"):
            yield f"{file.path}: owner {found.owner}:{found.group} instead of root:root"


def _drop_ins(release: Release, state: HostState) -> Iterator[str]:
    folders = tuple(f"/{unit.service}.d/" for unit in release.plan.units)
    for path in state.files:
        if any(folder in path for folder in folders):
            yield f"{path}: a drop-in that the release does not have"


def _units(release: Release, state: HostState) -> Iterator[str]:
    wanted = {unit.service for unit in release.plan.units} | set(paths.OTHER_UNITS)
    for name, unit in state.units.items():
        if name in wanted and unit.enabled != "enabled" and f"{paths.UNITS}/{name}" in state.files:
            yield f"{name}: {unit.enabled or 'not enabled'} instead of enabled"
        if name not in wanted and (unit.active != "inactive" or f"{paths.UNITS}/{name}" in state.files):
            yield f"{name}: {unit.active}, a unit of another release"


def _links(release: Release, state: HostState) -> Iterator[str]:
    if state.active != release.digest:
        yield f"{paths.STATE}/active: {state.active or 'missing'} instead of {release.digest}"


def _runs(release: Release, unit: Unit, state: HostState) -> bool:
    found = state.units.get(unit.service)
    return found is not None and found.active == "active" and _started_from(release, found)


def _started_from(release: Release, unit: UnitState) -> bool:
    started = unit.started
    if started is None or started.invocation_id != unit.invocation_id or not started.engine_intact:
        return False
    wanted = {file.path: said_to_systemd(file) for file in release.files}
    key = release.plan.wanted.api_key
    if key:
        wanted[key.path_on_host] = key.sha256
        if key.path_on_host not in started.files:
            return False
    return started.release == release.digest and started.files.items() <= wanted.items()


def said_to_systemd(file: ReleaseFile) -> str:
    """sha256 of the file without its comments, as hostkit notes it when a unit starts."""
    return hashlib.sha256(without_comments(file.text).encode()).hexdigest()
