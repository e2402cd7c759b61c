"""The machine: boots systemd over a base tree with the real GPUs in sight, and runs commands in it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox import cgroups
from sandbox.errors import HostDidNotBoot
from sandbox.furnish import put, put_checkpoint, put_copies, put_registries
from sandbox.gpu.install import install_gpus
from sandbox.gpu_host import keys, shown
from sandbox.processes import Process

NAME = "gpu-host"
ADDRESS, PORT = "127.0.0.1", 2222
BOOT_LIMIT_S = 60.0
SUPERVISOR = Path(__file__).resolve().parent.parent / "supervisor.py"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# It shares the outer network, so sshd listens on the loopback alone, and beside one that is there already.
_SSHD = f"""\
ListenAddress {ADDRESS}
Port {PORT}
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
"""


class GpuHost:
    """One machine per state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "console.log"

    @property
    def cgroup(self) -> str:
        return f"{self.folder.name}-{NAME}"

    # -- power

    def up(self, tree: Path, binds: Mapping[str, str], stand_in: bool, keep: bool = False) -> float:
        """Boot over `tree`, on a fresh disk or on the one it has; returns the seconds until sshd answered.

        With `keep`, one that runs goes on running. Raises HostDidNotBoot.
        """
        began = time.monotonic()
        if keep and self.process and self.init:
            return 0.0
        self.down()
        if not keep:
            self._fresh_disk(stand_in)
        seen = {} if stand_in else shown.files()
        devices = [] if stand_in else shown.nodes()
        specification = self._specification(tree, {**seen, **binds}, devices)
        (self.folder / "machine.json").write_text(json.dumps(specification, indent=1))
        _hand_down_controllers()
        (self.folder / "pid").write_text(str(self._supervise()))
        self._wait()
        self.run(["ldconfig"])
        return time.monotonic() - began

    def _fresh_disk(self, stand_in: bool) -> None:
        for part in ("upper", "work", "root"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
            (self.folder / part).mkdir(parents=True)
        self._furnish(self.folder / "upper", stand_in)

    def down(self) -> None:
        """Power off; what does not end by itself is killed. Its disk stays."""
        process = self.process
        if process:
            process.send(signal.SIGTERM)
            process.wait(40)
        cgroups.kill(self.cgroup)

    @property
    def process(self) -> Process | None:
        """The supervisor, known by a mark in its environment."""
        try:
            return Process.find(int((self.folder / "pid").read_text()), self._mark)
        except (FileNotFoundError, ValueError):
            return None

    # -- the inside

    @property
    def init(self) -> int | None:
        """The outer process id of the machine's systemd."""
        top = cgroups.hierarchy() / self.cgroup
        found = [pid for file in top.rglob("init.scope/cgroup.procs") for pid in file.read_text().split()]
        return int(found[0]) if found else None

    @property
    def view(self) -> Path:
        """The running machine's disk as it sees it."""
        return Path(f"/proc/{self.init}/root")

    def run(
        self, argv: Sequence[str], *, check: bool = False, limit_s: float = 60, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine as root. Raises subprocess.TimeoutExpired, and CalledProcessError on `check`."""
        enter = ["nsenter", "--target", str(self.init), "--mount", "--pid", "--uts", "--ipc", "--cgroup"]
        clean = ["env", "-i", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"]
        command = [*enter, *clean, *argv]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=check, timeout=limit_s)

    def pids(self, unit: str) -> dict[int, str]:
        """Outer process ids of a unit's control group, each with its command line."""
        top = cgroups.hierarchy() / self.cgroup
        found = [int(pid) for file in top.rglob(f"{unit}/**/cgroup.procs") for pid in file.read_text().split()]
        found += [int(pid) for file in top.rglob(f"{unit}/cgroup.procs") for pid in file.read_text().split()]
        return {pid: _command(pid) for pid in sorted(set(found))}

    # -- private

    @property
    def _mark(self) -> str:
        return f"SANDBOX_MACHINE={self.folder}"

    def _furnish(self, disk: Path, stand_in: bool) -> None:
        host_key, client_key = keys.pair(self.folder / "keys" / "host"), keys.pair(self.folder / "keys" / "client")
        put(disk, "/etc/ssh/ssh_host_ed25519_key", host_key.read_text(), 0o600)
        put(disk, "/etc/ssh/authorized_keys", keys.public(client_key))
        put(disk, "/etc/ssh/sshd_config.d/05-gpu-host.conf", _SSHD)
        (self.folder / "known_hosts").write_text(f"[{ADDRESS}]:{PORT} {keys.public(host_key)}")
        put_registries(disk)
        put_copies(disk)
        put_checkpoint(disk)
        if stand_in:
            install_gpus(disk)
        elif shown.DRIVER.is_dir():
            put(disk, "/etc/ld.so.conf.d/nvidia.conf", f"{shown.DRIVER}/lib64\n{shown.DRIVER}/lib\n")
            (disk / "usr/bin").mkdir(parents=True, exist_ok=True)
            (disk / "usr/bin/nvidia-smi").symlink_to(shown.DRIVER / "bin/nvidia-smi")

    def _specification(self, tree: Path, binds: Mapping[str, str], devices: Sequence[str]) -> dict[str, object]:
        stamp = self.folder / "stamp"
        stamp.touch()
        return {
            "host": NAME,
            "machine": self.cgroup,
            "namespace": None,
            "nspawn": _nspawn(tree),
            "lowers": [str(tree)],
            "stamp": str(stamp),
            **{part: str(self.folder / part) for part in ("upper", "work", "root")},
            "binds": dict(binds),
            "devices": list(devices),
            "resolver": "replace-host" if Path("/etc/resolv.conf").exists() else "off",
        }

    def _supervise(self) -> int:
        _give_machine_id()
        argv = ["setsid", "--fork", "unshare", "--mount", "--propagation", "private"]
        argv += [sys.executable, "-I", str(SUPERVISOR), str(self.folder / "machine.json")]
        environment = {"PATH": os.environ["PATH"], "SANDBOX_MACHINE": str(self.folder)}
        with self.log.open("a") as log:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd="/",
                check=False,
            )
        if not done.stdout.strip():
            raise HostDidNotBoot(NAME, "could not be started", self.log)
        return int(done.stdout)

    def _wait(self) -> None:
        deadline = time.monotonic() + BOOT_LIMIT_S
        while not (self.init and _greets()):
            if not self.process:
                raise HostDidNotBoot(NAME, "ended while booting", self.log)
            if time.monotonic() > deadline:
                raise HostDidNotBoot(NAME, f"did not answer within {BOOT_LIMIT_S:.0f} s", self.log)
            time.sleep(0.1)


def _greets() -> bool:
    """Whether sshd says what it is."""
    try:
        with socket.create_connection((ADDRESS, PORT), timeout=2) as connection:
            return connection.recv(16).startswith(b"SSH-")
    except OSError:
        return False


def _nspawn(tree: Path) -> list[str]:
    """How to call systemd-nspawn: the one installed here, else the tree's own, by the tree's own loader."""
    if shutil.which("systemd-nspawn"):
        return ["systemd-nspawn"]
    libraries = f"{tree}/usr/lib/x86_64-linux-gnu:{tree}/usr/lib/x86_64-linux-gnu/systemd"
    return [f"{tree}/usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries, f"{tree}/usr/bin/systemd-nspawn"]


def _give_machine_id() -> None:
    """nspawn ends with "Failed to retrieve machine ID" where the outer machine has none."""
    path = Path("/etc/machine-id")
    if not path.exists() or not path.read_text().strip():
        path.write_text(os.urandom(16).hex() + "\n")


def _hand_down_controllers() -> None:
    """Let the machine limit and count: a controller that is not to be had is left out."""
    for controller in ("cpu", "io", "memory", "pids"):
        with contextlib.suppress(OSError):
            (cgroups.hierarchy() / "cgroup.subtree_control").write_text(f"+{controller}")


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
