"""The one look at a host: everything a run decides on, as one JSON document, changing nothing.

It runs before anything is installed, from a command line (see tasks/look.py), so it and what it imports are
stdlib only and stay under 100 KiB together.
"""

import grp
import hashlib
import json
import os
import platform
import pwd
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hostkit import (
    gpus,
    hold,
    integrity,
    intent,
    ours,
    paths,
    processes,
    stamps,
    started,
    systemd,
    under_way,
    unmanaged,
)

Answer = TypeVar("Answer")

_HASHED_UP_TO = 8 << 20
# systemd manages this machine (sd_booted(3)).
BOOTED = Path("/run/systemd/system").is_dir()
_WATCHED = (
    "/etc/sglang",
    "/etc/sglang/*",
    "/etc/sglang/credentials/*",
    "/etc/systemd/system/sglang*",
    *(f"{folder}/sglang*.d/*" for folder in started.DROP_IN_FOLDERS),
    "/etc/systemd/journald@sglang.conf",
    "/etc/needrestart/conf.d/50-sglang.conf",
    "/usr/local/bin/sglang-box",
    "/opt/sglang",
    "/opt/sglang/*",
    "/opt/sglang/hostkit/*/*",
    "/opt/sglang/uv/*",
    "/opt/sglang/engines/*.lock",
    "/opt/sglang/engines/*.patches",
    "/opt/sglang/wheels/*/*",
    "/var/cache/sglang",
    "/var/cache/sglang/*",
    "/var/lib/sglang",
    "/var/lib/sglang/*",
    "/var/lib/sglang/releases/*/*",
)


def inspect(request: dict[str, Any]) -> dict[str, Any]:
    """request: {"models": folder of checkpoints, "packages": [names], "bundle": folder or null} -> the document."""
    asked_cards, uses, units, jobs = _asked(_cards), _asked(_gpu_uses), _asked(_units), _asked(_jobs)
    packages = _asked(lambda: _packages(request["packages"]))
    files = {str(path): _file(path) for pattern in (*_WATCHED, request["models"]) for path in _matches(pattern)}
    listening = processes.listeners()
    cards, driver, driver_error = asked_cards()
    held = uses() if cards else []
    return {
        "schema": 1,
        "hostname": platform.node(),
        "os": _os_name(),
        "init": Path("/proc/1/comm").read_text().strip(),
        "arch": platform.machine(),
        "glibc": platform.libc_ver()[1],
        "pythons": _pythons(),
        "driver": driver,
        "driver_error": driver_error,
        "gpus": [{key: value for key, value in vars(card).items() if key != "driver"} for card in cards],
        "gpu_uses": [
            {"pci": use.pci, "used_mib": use.used_mib, "process": process.as_json()} for use, process in held if process
        ],
        "servers": _servers([use for use, _ in held], listening),
        "free_gb": {folder: _free_gb(folder) for folder in ("/opt/sglang", request["models"], "/var/lib/sglang")},
        "files": files,
        "packages": packages(),
        "users": {user.pw_name: user.pw_uid for user in pwd.getpwall()},
        "units": units(),
        "listeners": _listeners(listening),
        "active": _link_name(paths.ACTIVE),
        "last_good": _link_name(paths.LAST_GOOD),
        "engines": _engines(),
        "checkpoints": _checkpoints(Path(request["models"])),
        "jobs": (under := jobs()),
        "progress": {kind: event for kind in under if (event := under_way.last_event(kind))},
        "intent": intent.read(),
        "hold": hold.read(),
        "records": _documents(paths.RECORDS.glob("*.json"), key=lambda path: path.stem),
        "bundle": _bundle(request.get("bundle")),
    }


def _asked(question: Callable[[], Answer]) -> Callable[[], Answer]:
    """Begin to ask at once; call what is returned for the answer. The programs asked then wait side by side."""
    answers: list[Answer] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(question())
        except Exception as error:
            errors.append(error)

    def answer() -> Answer:
        thread.join()
        if errors:
            raise errors[0]
        return answers[0]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return answer


def _cards() -> tuple[list[gpus.Gpu], str | None, str | None]:
    try:
        cards = gpus.gpus()
    except gpus.DriverError as error:
        return [], None, str(error)
    return cards, cards[0].driver if cards else None, None if cards else "nvidia-smi lists no GPU"


def _gpu_uses() -> list[tuple[gpus.Use, processes.Process | None]]:
    try:
        return gpus.uses_with_processes()
    except gpus.DriverError:
        return []


def _servers(uses: list[gpus.Use], listening: list[unmanaged.Listening]) -> list[dict[str, Any]]:
    return [server.as_json() for server in unmanaged.find(ours.services(), uses, listening)]


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()


def _pythons() -> dict[str, str]:
    """Interpreters of the distribution that can make a virtual environment, by version."""
    found = {}
    for version in ("3.11", "3.12", "3.13"):
        path = f"/usr/bin/python{version}"
        if os.path.exists(path) and Path(f"/usr/lib/python{version}").is_dir():
            found[version] = path
    return found


def _free_gb(folder: str) -> float:
    """Free space, in GB, of the file system that the folder is or would be on."""
    path = Path(folder)
    while not path.exists():
        path = path.parent
    return round(shutil.disk_usage(path).free / 1e9, 1)


def _matches(pattern: str) -> list[Path]:
    return sorted(Path("/").glob(pattern[1:]))


def _file(path: Path) -> dict[str, Any]:
    info = path.lstat()
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    kind = next((name for test, name in kinds if test(info.st_mode)), "other")
    return {
        "type": kind,
        "mode": f"{stat.S_IMODE(info.st_mode):o}",
        "owner": _name(pwd.getpwuid, info.st_uid),
        "group": _name(grp.getgrgid, info.st_gid),
        "sha256": _sha256(path) if kind == "file" and info.st_size <= _HASHED_UP_TO else None,
        "target": os.readlink(path) if kind == "link" else None,
    }


def _name(look_up: Any, number: int) -> str:
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _packages(names: list[str]) -> dict[str, str]:
    """Installed versions of the distribution's packages among `names`."""
    command = ["dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Status}\\n", *names]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except FileNotFoundError:
        return {}
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}


def _units() -> dict[str, Any]:
    if not BOOTED:
        return {}
    shown = systemd.show(*ours.services(), paths.TARGET, paths.BOOT_UNIT, paths.CHECK_UNIT)
    keys = (
        "load",
        "active",
        "sub",
        "enabled",
        "main_pid",
        "invocation_id",
        "restarts",
        "needs_reload",
        "drop_ins",
    )
    return {
        name: {**{key: getattr(unit, key) for key in keys}, "started": started.read(name)}
        for name, unit in shown.items()
    }


def _jobs() -> list[str]:
    """Kinds of the jobs under way: a run joins them, and decides nothing on what they are about to change."""
    if not BOOTED:
        return []
    return under_way.kinds()


def _listeners(listening: list[unmanaged.Listening]) -> list[dict[str, Any]]:
    rows = []
    for address, port, pid in listening:
        process = processes.read(pid) if pid else None
        rows.append({"address": address, "port": port, "process": process.as_json() if process else None})
    return rows


def _link_name(link: Path) -> str | None:
    return link.readlink().name if link.is_symlink() else None


def _documents(found: Any, key: Any) -> dict[str, Any]:
    documents = {}
    for path in found:
        try:
            documents[key(path)] = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
    return documents


def _bundle(folder: str | None) -> dict[str, Any] | None:
    """What a bundle for a host without a network says that it holds, None where there is none."""
    return _documents([Path(folder) / "bundle.json"], key=lambda path: "it").get("it") if folder else None


def _engines() -> dict[str, Any]:
    """Installed engines by digest: what they are, and which of their folders changed since (the first few)."""
    found = {}
    for folder in sorted(paths.ENGINES.glob("*")):
        stamp = integrity.read_stamp(folder) if folder.is_dir() else None
        if stamp:
            changed = integrity.changed_since(folder, stamp)
            found[folder.name] = {"package": stamp["package"], "versions": stamp["versions"], "changed": changed[:5]}
    return found


def _checkpoints(models: Path) -> dict[str, Any]:
    """Each folder <models>/<owner>/<name>/<revision>: its files, the stamp of its last full check, and what it
    takes on disk (bytes): less than its size while a fetch is under way."""
    found = {}
    for folder in sorted(models.glob("*/*/*")):
        if folder.is_dir():
            there = [path for path in folder.rglob("*") if path.is_file()]
            files = {str(path.relative_to(folder)): stamps.identity(path) for path in there}
            on_disk = sum(path.stat().st_blocks for path in there) * 512
            found[str(folder)] = {"files": files, "stamp": stamps.read(folder), "on_disk": on_disk}
    return found
