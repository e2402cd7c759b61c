"""Runs one machine from power-on to power-off, inside a mount namespace of its own.

Started by machine.py as a program, with the path of a specification (JSON); it imports nothing of the
project. The overlay and a pure cgroup v2 are mounted here only, so they vanish with the machine, whatever
ends it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

# With --keep-unit nspawn has nobody to restart it; it ends with this status when the machine reboots.
REBOOT = 133
CGROUPS = Path("/sys/fs/cgroup")


def mount_disk(spec: dict[str, Any]) -> None:
    """Mount the host's writable layer over the shared ones."""
    # redirect_dir: a folder of the shared layers can be renamed, as on a disk of one layer.
    options = f"redirect_dir=on,lowerdir={':'.join(spec['lowers'])},upperdir={spec['upper']},workdir={spec['work']}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, spec["root"]], check=True)


def mount_cgroups() -> None:
    """Show pure cgroup v2, as a current host has it: nspawn would copy an outer hybrid layout."""
    if (CGROUPS / "cgroup.controllers").exists():
        return
    subprocess.run(["umount", "--lazy", "--recursive", str(CGROUPS)], check=True)
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(CGROUPS)], check=True)


def nspawn_command(spec: dict[str, Any]) -> list[str]:
    """Return the command that boots the machine; neither systemd nor D-Bus is needed outside.

    The specification's `nspawn` is how to call it; a machine without a `namespace` shares the outer network, and
    `devices` are nodes of the outer machine that it may use.
    """
    return [
        *spec.get("nspawn", ["systemd-nspawn"]),
        "--quiet",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--console=pipe",
        f"--machine={spec['machine']}",
        f"--hostname={spec['host']}",
        f"--directory={spec['root']}",
        *own_network(spec),
        f"--resolv-conf={spec['resolver']}",
        # systemd loads BPF programs for DeviceAllow= and IPAddressDeny=; nspawn's filter would forbid it.
        "--system-call-filter=bpf",
        *(f"--bind-ro={source}:{target}" for source, target in spec["binds"].items()),
        *(f"--bind={device}" for device in spec.get("devices", [])),
    ]


def own_network(spec: dict[str, Any]) -> list[str]:
    """Return the options of a machine with a network namespace of its own, none for one that shares the outer."""
    if not spec["namespace"]:
        return []
    # nspawn drops the capability when it does not set up the network, but `ip` and sysctl net.* must work inside.
    return [f"--network-namespace-path={spec['namespace']}", "--capability=CAP_NET_ADMIN"]


class Supervisor:
    """Boots the machine again each time it reboots, until it powers off or is told to stop."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.stopping = False
        self.machine: subprocess.Popen[bytes] | None = None

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Pass a request to stop on to nspawn, which powers the machine off cleanly."""
        self.stopping = True
        if self.machine:
            self.machine.terminate()

    def run(self) -> int:
        """Return nspawn's last exit status."""
        signal.signal(signal.SIGTERM, self.stop)
        status = REBOOT
        while status == REBOOT and not self.stopping:
            self.empty_cgroup()
            print("-- power on --", flush=True)
            self.machine = subprocess.Popen(
                nspawn_command(self.spec),
                stdin=subprocess.DEVNULL,
                env=self.environment(),
                preexec_fn=self.enter,  # safe: there are no threads here
            )
            status = self.machine.wait()
        return status

    def empty_cgroup(self) -> None:
        """Make the machine's cgroup anew: one with children and controllers takes no process itself."""
        top = CGROUPS / self.spec["machine"]
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()
        top.mkdir()

    def enter(self) -> None:
        """Put nspawn alone, not this supervisor, into the machine's cgroup; it hands the controllers down."""
        (CGROUPS / self.spec["machine"] / "cgroup.procs").write_text("0")

    def environment(self) -> dict[str, str]:
        """Let the machine set its own network's sysctls; have /tmp on disk: pip unpacks gigabytes there."""
        own = {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"} if self.spec["namespace"] else {}
        return {"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_TMPFS_TMP": "0", **own}


def main() -> int:
    """Mount, report the process id on standard output, and run the machine with the log as output."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    with open(spec["stamp"]) as stamp:  # a tree in use is not dropped
        fcntl.flock(stamp, fcntl.LOCK_SH)
        try:
            mount_disk(spec)
            mount_cgroups()
        except subprocess.CalledProcessError:
            return 1  # what `mount` had to say is in the log
        print(os.getpid(), flush=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return Supervisor(spec).run()


if __name__ == "__main__":
    sys.exit(main())
