"""Stops what the playbook started, and shows that nothing of it is left: processes, listeners, shared memory."""

import contextlib
import pwd
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from hostkit import capture, gates, ours, paths, processes, release, systemd
from hostkit.events import Progress, Verdict

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (looked at for what dead servers left)
_HEARTBEAT_S = 10.0
_AFTER_KILL_S = 20.0
_ASKED_WITHIN_S = 5.0


def running() -> list[systemd.Unit]:
    """The playbook's units that have processes or are about to."""
    return [unit for unit in systemd.show(*ours.services()).values() if unit.active not in ("inactive", "failed")]


def stop_all(progress: Progress, keep: Collection[str] = ()) -> list[Verdict]:
    """Drain, TERM, wait, KILL by control group (systemd does it), and look. Raises gates.NotMet if anything is left.

    systemd stops a router before its workers: it takes no new request then, and ends those that it has. Services in
    `keep` go on.
    """
    units, known = [unit for unit in running() if unit.name not in keep], ours.units()
    names = [unit.name for unit in units]
    for unit in units:
        _keep_evidence(unit.name, known.get(unit.name), progress)
        progress.tell("stop", f"{unit.name}, pid {unit.main_pid}: draining what it answers", unit=unit.name)
    limit_s = _limit_s([known.get(name, {}) for name in names])
    began = time.monotonic()
    if names:
        _stop(names, limit_s + 30, progress)
    if ours.services():
        systemd.run("systemctl", "reset-failed", *ours.services(), check=False)
    evidence = nothing_left(units, [port for name in names for port in _ports(known.get(name))], keep)
    if not names:
        return []
    took = time.monotonic() - began
    return [Verdict("stopped, nothing left", True, f"{', '.join(names)} in {took:.1f} s; {evidence}", limit_s)]


def _limit_s(units: Sequence[dict[str, Any]]) -> int:
    """How long a stop may take, s: a unit stops when those that come after it have, the router first of all."""
    drains = [unit.get("stop_within_s", release.DRAIN_S) for unit in units]
    return sum(drains) if any(unit.get("after") for unit in units) else max(drains, default=0)


def _ports(unit: dict[str, Any] | None) -> list[int]:
    return list(release.ports(unit).values()) if unit else []


def _keep_evidence(service: str, unit: dict[str, Any] | None, progress: Progress) -> None:
    """What can be known of a sick server is known only until it is stopped. It never keeps one from being stopped."""
    with contextlib.suppress(Exception):
        document = release.load(release.active() or "")
        reason = capture.sick(unit, document, _ASKED_WITHIN_S) if unit else None
        if reason:
            folder = capture.capture(service, document, reason)
            progress.tell("capture", f"{reason}; evidence is in {folder}", unit=service.removesuffix(".service"))


def _stop(names: list[str], limit_s: float, progress: Progress) -> None:
    began = told = time.monotonic()
    stopping = subprocess.Popen(["systemctl", "stop", *names], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while stopping.poll() is None:
        now = time.monotonic()
        if now - began > limit_s:
            systemd.run("systemctl", "kill", "--signal=KILL", *names, check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                stopping.wait(_AFTER_KILL_S)
            stopping.kill()
            return
        if now - told > _HEARTBEAT_S:
            told = now
            eta_s = limit_s - (now - began)
            progress.tell("stop", f"still draining; killed after {limit_s:.0f} s at the latest", eta_s=eta_s)
        time.sleep(0.05)


def nothing_left(units: Iterable[systemd.Unit], ports: Iterable[int], keep: Collection[str] = ()) -> str:
    """Raises gates.NotMet: a process in a unit's control group or of our engines, or a listener on their ports."""
    left = [pid for unit in units for pid in processes.of_control_group(unit.control_group)]
    left += _of_our_engines(keep)
    if left:
        raise gates.StillHeld(f"still there after the stop: {gates.describe(processes.read(left[0]))}")
    ports = set(ports)
    for address, port, pid in processes.listeners():
        if port in ports:
            holder = gates.describe(processes.read(pid) if pid else None)
            raise gates.NotMet(f"port {port} is still in use on {address} after the stop, by {holder}")
    swept = sweep_shared_memory()
    return "no process, no listener" + (f", {swept} shared-memory segments of dead owners removed" if swept else "")


def _of_our_engines(keep: Collection[str]) -> list[int]:
    """Processes of the service user whose program is one of our engines and that no foreign unit owns."""
    mine = set(ours.services()) - set(keep)
    found = []
    for pid in processes.pids():
        with contextlib.suppress(OSError):
            program = (processes.PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            owner = processes.unit_of(pid)
            if program.startswith(f"{paths.ENGINES}/") and _is_service_user(pid) and (owner is None or owner in mine):
                found.append(pid)
    return found


def _is_service_user(pid: int) -> bool:
    try:
        return (processes.PROC / str(pid)).stat().st_uid == pwd.getpwnam(paths.SERVICE_USER).pw_uid
    except (KeyError, OSError):  # no such user, or the process is gone
        return False


def sweep_shared_memory() -> int:
    """Remove what the service user left in /dev/shm, when no process of it lives; returns how many went."""
    try:
        uid = pwd.getpwnam(paths.SERVICE_USER).pw_uid
    except KeyError:
        return 0
    if any(_is_service_user(pid) for pid in processes.pids()):
        return 0
    segments = [path for path in _SHARED_MEMORY.iterdir() if path.lstat().st_uid == uid and path.is_file()]
    for path in segments:
        path.unlink(missing_ok=True)
    return len(segments)
