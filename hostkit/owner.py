"""What a process belongs to, by its cgroup: a unit or a container brings it back, a login session does not."""

import os
import pwd
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hostkit import processes, systemd

_CONTAINER = re.compile(r"(?:(docker|libpod)-)?([0-9a-f]{64})(?:\.scope)?")
_TOOLS = {"docker": "docker", "libpod": "podman"}
# Machines and pods: nothing on this host stops one server in them, and the units named below them are not this host's.
_FOREIGN = re.compile(r"(kubepods|machine-|systemd-nspawn@|lxc\.payload|lxc$|cri-containerd-|crio-|nerdctl-)")
_USER_MANAGER = re.compile(r"user@(\d+)\.service")
# People work in these. They bring back nothing, and stopping one would end more than a server.
_LOGIN = re.compile(r"(sshd?|getty|serial-getty|crond?|atd|systemd-logind|login)[.@].*")
_NOT_FROM_HERE = "it runs in a machine or pod, which is not stopped from here"
# What a unit's shell script may run beside its server.
_HELPERS = {"bash", "sh", "dash", "tee", "cat", "sleep", "logger", "systemd-cat", "ts"}
_CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/systemd"))


@dataclass(frozen=True)
class Owner:
    """kind is unit, container, session or none. `stop` and `start` are commands, empty where there is none.

    `back` says what starts it again, `reason` why its owner cannot be stopped for one server's sake.
    """

    kind: str
    name: str
    stop: str = ""
    start: str = ""
    back: str = ""
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def by_cgroup(text: str) -> Owner:
    """The owner by the text of /proc/PID/cgroup. The outermost counts: a container has units of its own."""
    session, manager, parent = "", "", ""
    for name in _path(text).split("/"):
        container = _CONTAINER.fullmatch(name)
        if container and (container[1] or parent == "docker"):
            return _container(_TOOLS[container[1] or parent], container[2])
        if _FOREIGN.match(name):
            return Owner("container", name, reason=_NOT_FROM_HERE)
        if _USER_MANAGER.fullmatch(name):
            manager, session = _user(name), name
        elif name.endswith(".service"):
            return Owner("session", name) if _LOGIN.fullmatch(name) else _unit(name, manager)
        elif name.endswith(".scope") and name != "init.scope":
            session = name
        parent = name
    return Owner("session", session) if session else Owner("none", "")


def of(pid: int) -> Owner:
    """The owner of a live process. Raises OSError when it is gone."""
    text = (processes.PROC / str(pid) / "cgroup").read_text()
    owner = by_cgroup(text)
    if owner.kind == "container" or not _elsewhere(pid) or _CONTAINER.search(_path(text)):
        return owner
    return Owner("container", owner.name, reason=_NOT_FROM_HERE)


def settled(owner: Owner, pid: int, servers: Collection[int]) -> Owner:
    """With what brings it back, and whether it can be stopped: a unit that runs more than `servers` (pids) is not."""
    if not owner.stop or owner.kind != "unit":
        return owner
    try:
        path = _path((processes.PROC / str(pid) / "cgroup").read_text())
    except OSError:  # it is gone
        return owner
    others = [other for other in _members(path, owner.name) if not _belongs(other, pid, servers)]
    if others:
        found = processes.read(others[0])
        what = f"{owner.name} also runs pid {others[0]}: {found.command[:80] if found else 'gone'}"
        return replace(owner, stop="", start="", reason=what)
    return _with_settings(owner)


def _elsewhere(pid: int) -> bool:
    """In a process namespace of its own: a unit of its cgroup may be that of another service manager."""
    return os.readlink(processes.PROC / str(pid) / "ns/pid") != os.readlink(processes.PROC / "self/ns/pid")


def _path(text: str) -> str:
    """The path in systemd's own hierarchy: the only one of version 2, a named one of version 1."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    return max((row[2] for row in rows if row[1] in ("", "name=systemd")), key=len, default="")


def _container(tool: str, identifier: str) -> Owner:
    short = identifier[:12]
    return Owner("container", f"{tool} {short}", f"{tool} stop {short}", f"{tool} start {short}")


def _unit(name: str, user: str) -> Owner:
    systemctl = f"systemctl --user --machine={user}@" if user else "systemctl"
    return Owner("unit", name, f"{systemctl} stop {name}", f"{systemctl} start {name}")


def _user(manager: str) -> str:
    uid = _USER_MANAGER.fullmatch(manager)
    try:
        return pwd.getpwuid(int(uid[1])).pw_name if uid else ""
    except KeyError:
        return uid[1] if uid else ""


def _members(path: str, unit: str) -> list[int]:
    """All processes of the unit, from the kernel."""
    below = path[: path.index(f"/{unit}") + len(unit) + 1]
    return [pid for root in _CGROUPS for pid in processes.of_control_group(below, root)]


def _belongs(other: int, pid: int, servers: Collection[int]) -> bool:
    """A server's process, what started it, or what a shell runs beside it."""
    if other in servers or other in processes.ancestors(pid):
        return True
    try:
        return (processes.PROC / str(other) / "comm").read_text().strip() in _HELPERS
    except OSError:
        return True


def _with_settings(owner: Owner) -> Owner:
    """With what the manager does by itself; a transient unit is gone once stopped, and so cannot be started."""
    query = [*owner.stop.split()[:-2], "show", "--property=Restart,UnitFileState,TriggeredBy", owner.name]
    values = dict(line.split("=", 1) for line in systemd.run(*query, check=False).splitlines() if "=" in line)
    state, restart = values.get("UnitFileState", ""), values.get("Restart", "no")
    back = [f"Restart={restart}"] if restart not in ("no", "") else []
    back += ["enabled at boot"] if state.startswith("enabled") else []
    back += [f"started by {values['TriggeredBy']}"] if values.get("TriggeredBy") else []
    return replace(owner, back=", ".join(back), start="" if state == "transient" else owner.start)
