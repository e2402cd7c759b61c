"""Who runs, since when, in which systemd unit, and who listens where: read from /proc, no tools needed."""

import os
import pwd
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
_LISTEN = "0A"
_UNIT = re.compile(r"/([^/]+\.(?:service|scope))(?=/|$)")
# What a foreign command line may give away: it is shown at the controller and kept in logs there.
_SECRET = re.compile(r"(--[\w-]*(?:key|token|password|secret)[= ])\S+", re.IGNORECASE)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A live process. start_ticks (clock ticks since boot) tells it from a later one with the same pid."""

    pid: int
    start_ticks: int
    user: str
    age_s: int
    command: str
    unit: str | None

    def as_json(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("pid", "user", "age_s", "command", "unit")}


def read(pid: int) -> Process | None:
    """The process, or None when there is none (any more)."""
    folder = PROC / str(pid)
    try:
        ticks = start_ticks(pid)
        uptime = float((PROC / "uptime").read_text().split()[0])
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return Process(
            pid=pid,
            start_ticks=ticks,
            user=_user(folder.stat().st_uid),
            age_s=max(0, int(uptime - ticks / _TICKS)),
            command=without_secrets(command) or (folder / "comm").read_text().strip(),
            unit=unit_of(pid),
        )
    except (OSError, ValueError):
        return None


def start_ticks(pid: int) -> int:
    """Start time in clock ticks since boot; OSError when the process is gone."""
    stat = (PROC / str(pid) / "stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])


def without_secrets(command: str) -> str:
    """The command line without the values of options like `--api-key`."""
    return _SECRET.sub(r"\1***", command)


def ticks_or_none(pid: int) -> int | None:
    """Start time in clock ticks since boot, None when the process is gone."""
    try:
        return start_ticks(pid)
    except (OSError, ValueError, IndexError):
        return None


def parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for pid in pids():
        try:
            found[pid] = _parent(pid)
        except OSError:
            continue
    return found


def ancestors(pid: int) -> list[int]:
    """Who started the process, who started that, and so on up to 1."""
    found: list[int] = []
    try:
        while pid := _parent(pid):
            found.append(pid)
    except OSError:
        pass
    return found


def _parent(pid: int) -> int:
    return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def unit_of(pid: int) -> str | None:
    """The systemd unit of the process; one of a user's manager or of a machine is "outer unit: its own unit"."""
    units = _UNIT.findall((PROC / str(pid) / "cgroup").read_text())
    return ": ".join(dict.fromkeys([units[0], units[-1]])) if units else None


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with; OSError when it is gone."""
    entries = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def arguments(pid: int) -> list[str]:
    """The words of the command line; none when the process is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]


def of_control_group(group: str, root: Path = CGROUPS) -> list[int]:
    """The pids in a unit's control group and those below it, [] where there is none."""
    top = root / group.lstrip("/")
    try:
        files = sorted(top.rglob("cgroup.procs")) if group.strip("/") else []
    except OSError:  # a group below it went meanwhile
        files = [top / "cgroup.procs"]
    return [int(pid) for file in files for pid in _lines(file)]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def listeners() -> list[tuple[str, int, int | None]]:
    """(address, port, pid) of each listening TCP socket; pid is None where the owner cannot be seen."""
    inodes = {inode: (address, port) for address, port, inode in _listening_sockets()}
    owners: dict[int, int] = {}
    for pid in pids():
        for inode in _socket_inodes(pid):
            if inode in inodes:
                owners.setdefault(inode, pid)
    return sorted((address, port, owners.get(inode)) for inode, (address, port) in inodes.items())


def _listening_sockets() -> Iterator[tuple[str, int, int]]:
    for table in ("tcp", "tcp6"):
        path = PROC / "net" / table
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == _LISTEN:
                address, _, port = fields[1].partition(":")
                yield _address(address), int(port, 16), int(fields[9])


def _address(text: str) -> str:
    words = [struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


def _socket_inodes(pid: int) -> Iterator[int]:
    folder = PROC / str(pid) / "fd"
    try:
        for name in os.listdir(folder):
            target = os.readlink(folder / name)
            if target.startswith("socket:["):
                yield int(target[8:-1])
    except OSError:
        return


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
