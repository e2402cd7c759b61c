"""One sandbox host: a machine, and what may be asked of it over SSH."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Sequence

from sandbox import ssh
from sandbox.errors import HostDidNotBoot, HostNotRunning
from sandbox.gpu.state import State
from sandbox.place import replace
from sandbox.power import POWER_OFF_LIMIT_S, Machine

BOOT_LIMIT_S = 60.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# sshd answers a little before other users than root may log in.
UNTIL_LOGINS_ARE_OPEN = "while test -e /run/nologin; do sleep 0.05; done"


class Host(Machine):
    """A host of the sandbox by name; it need not exist yet."""

    def wait(self) -> None:
        """Wait until every user may log in over SSH. Raises HostDidNotBoot with the end of the log."""
        deadline = time.monotonic() + BOOT_LIMIT_S
        while self.shell(UNTIL_LOGINS_ARE_OPEN).returncode:
            if not self.running:
                raise HostDidNotBoot(self.name, "ended while booting", self.log)
            if time.monotonic() > deadline:
                raise HostDidNotBoot(self.name, f"did not answer within {BOOT_LIMIT_S:.0f} s", self.log)
            time.sleep(0.05)

    def restart(self) -> None:
        """Reboot from inside and wait until another boot answers. Raises HostNotRunning, HostDidNotBoot."""
        if not self.running:
            raise HostNotRunning(self.name)
        before = self.read_file(BOOT_ID)
        self.run(["systemctl", "reboot"], check=False)
        deadline = time.monotonic() + BOOT_LIMIT_S + POWER_OFF_LIMIT_S
        while self.shell(f"! grep -qx {before.strip()} {BOOT_ID}").returncode:
            if not self.running or time.monotonic() > deadline:
                raise HostDidNotBoot(self.name, "did not come back from its reboot", self.log)
            time.sleep(0.05)
        self.wait()

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        check: bool = True,
        stdin: str = "",
        limit_s: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host, each argument as given, and return its output.

        Raises subprocess.CalledProcessError when `check` and the status is not 0, and
        subprocess.TimeoutExpired past `limit_s` (s).
        """
        local = ssh.command(self.place, self.name, argv, user=user)
        return subprocess.run(local, input=stdin, capture_output=True, text=True, check=check, timeout=limit_s)

    def shell(self, script: str, *, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root; by default its status is the caller's business."""
        return self.run(["sh", "-c", script], check=check)

    def read_file(self, path: str) -> str:
        """Return a text file of the host."""
        return self.run(["cat", path]).stdout

    def write_file(self, path: str, text: str, *, mode: str = "644", owner: str = "root") -> None:
        """Write a text file of the host, replaced as a whole, with the folders above it."""
        fresh = f"{path}.new"
        install = shlex.join(["install", "-D", "-m", mode, "-o", owner, "-g", owner, "/dev/stdin", fresh])
        self.run(["sh", "-c", f"{install} && {shlex.join(['mv', fresh, path])}"], stdin=text)

    def set_gpus(self, **changes: object) -> State:
        """Change the GPU stand-in: fields of sandbox.gpu.state.State. Returns the new state.

        Raises TypeError for a field and KeyError for a card that does not exist.
        """
        path = self.view / State.PATH.lstrip("/")
        state = State(**{**json.loads(path.read_text()), **changes})
        replace(path, state.to_json())
        self.run(["systemctl", "reload", "sandbox-gpu.service"])
        return state
