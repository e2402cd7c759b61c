"""The host itself: packages, service user, folders, and hostkit. Only what the look found different."""

import shlex

from pyinfra.operations import apt, files, server

from serving import paths
from serving.plan import hostkit_path
from serving.release import Release
from serving.schemas import File, HostState
from tasks import bundle, put
from tasks.step import step


@step("Host")
def prepared(release: Release) -> None:
    state = release.plan.state
    _packages(release)
    _service_user(state)
    _folders(release)
    _hostkit(state)


def _packages(release: Release) -> None:
    needed = frozenset[str]().union(*(engine.packages for engine in release.plan.engines))
    missing = sorted(needed - release.plan.state.packages.keys())
    if missing:
        apt.packages(
            name=f"Install {', '.join(missing)}",
            packages=missing,
            update=True,
            no_recommends=True,
            # A host that just booted may be busy with its own upgrades.
            extra_install_args="-o DPkg::Lock::Timeout=600",
        )


def _service_user(state: HostState) -> None:
    if paths.SERVICE_USER not in state.users:
        user = paths.SERVICE_USER
        options = f"--system --user-group --shell /usr/sbin/nologin --home-dir {paths.STATE} --no-create-home"
        # The other one of two runs at once may be quicker.
        server.shell(
            name=f"Add the service user {user}, without login",
            commands=[f"id -u {user} >/dev/null 2>&1 || useradd {options} {user} || id -u {user} >/dev/null"],
        )


def _folders(release: Release) -> None:
    root, service = "root", paths.SERVICE_USER
    wanted = [
        (paths.ENGINES, root, "755"),
        (paths.HOSTKIT, root, "755"),
        (paths.INSTALLER, root, "755"),
        (paths.CONFIG, root, "755"),
        (paths.STATE, root, "755"),
        (paths.RELEASES, root, "755"),
        (paths.CACHES, root, "755"),
        (release.plan.cache_folder, service, "700"),
    ]
    found = release.plan.state.files
    models = release.plan.wanted.site.models
    if models not in found:  # the operator's own, link or not, as he likes it
        wanted.append((models, root, "755"))
    different = [folder for folder in wanted if not _is_folder(found.get(folder[0]), *folder[1:])]
    if different:
        commands = [
            f"install -d -o {owner} -g {owner} -m {mode} {shlex.quote(path)}" for path, owner, mode in different
        ]
        server.shell(name=f"Create {len(different)} folders", commands=[" && ".join(commands)])


def _is_folder(found: File | None, owner: str, mode: str) -> bool:
    return found is not None and (found.type, found.owner, found.mode) == ("directory", owner, mode)


def _hostkit(state: HostState) -> None:
    path = hostkit_path(bundle.digest())
    put.where_different(state, path, bundle.archive(), "755", "Put hostkit onto the host")
    link = state.files.get(paths.CONSOLE_COMMAND)
    if link is None or link.target != path:
        files.link(
            name=f"Link {paths.CONSOLE_COMMAND} to hostkit",
            path=paths.CONSOLE_COMMAND,
            target=path,
            force=True,
            force_backup=False,
        )
