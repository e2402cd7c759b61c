"""Power and disk of one machine: from a fresh disk to a running supervisor, and back to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandbox import cgroups, layers, network
from sandbox.errors import HostDidNotBoot, HostNotRunning, NothingToBoot
from sandbox.furnish import furnish
from sandbox.place import Place, replace
from sandbox.processes import Process
from sandbox.tree import is_complete, root_of

# A server that drains its requests may take this long; then the plug is pulled.
POWER_OFF_LIMIT_S = 40.0


@dataclass(frozen=True)
class Record:
    """What outlives a machine's power cycles: its number, the layers below its disk, and its binds."""

    index: int
    tree: str = ""
    lowers: tuple[str, ...] = ()
    binds: Mapping[str, str] = field(default_factory=dict)


class Machine:
    """A machine of the sandbox by name; it need not exist yet."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.folder = place.host_folder(name)
        self.log = place.log_of(name)

    # -- what it is

    @property
    def record(self) -> Record:
        """The remembered facts; a host without any gets a number of its own."""
        path = self.folder / "record.json"
        return Record(**json.loads(path.read_text())) if path.exists() else Record(self._free_number())

    @property
    def address(self) -> str:
        """IPv4 address on the sandbox's bridge."""
        return network.address(self.place, self.record.index)

    @property
    def running(self) -> bool:
        """Whether its supervisor lives."""
        return self.process is not None

    @property
    def process(self) -> Process | None:
        """The supervisor, known by the mark in its environment."""
        try:
            pid = int((self.folder / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return Process.find(pid, self._mark)

    @property
    def view(self) -> Path:
        """The running host's disk as the host sees it. Raises HostNotRunning."""
        if not (process := self.process):
            raise HostNotRunning(self.name)
        return Path(f"/proc/{process.pid}/root{self.folder}/root")

    # -- power

    def fresh_disk(self, tree: Path, binds: Mapping[str, str]) -> None:
        """Drop all that the host ever wrote and put it on the base tree and the layers kept so far."""
        record = Record(self.record.index, str(tree), tuple(map(str, layers.existing(self.place, tree))), dict(binds))
        for part in ("upper", "work", "root"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        furnish(self.place, self.folder / "upper")
        self._write("record.json", json.dumps(asdict(record)))

    def power_on(self) -> None:
        """Start the machine on the disk it has. Raises NothingToBoot."""
        record = self.record
        if not record.tree or not is_complete(Path(record.tree)):
            raise NothingToBoot(self.name)
        self.clear()
        network.attach(self.place, self.name, record.index)
        self._write("machine.json", json.dumps(self._specification(record)))
        self._write("pid", str(self._supervise()))

    def request_power_off(self) -> None:
        """Ask for a clean shutdown and return at once; asked twice, nspawn would pull the plug."""
        if process := self.process:
            process.send(signal.SIGTERM)

    def finish_power_off(self) -> None:
        """Wait for the shutdown, but not longer than the limit, and leave nothing of the machine."""
        if process := self.process:
            process.wait(POWER_OFF_LIMIT_S)
        self.clear()

    def clear(self) -> None:
        """Pull the plug: end every process of the machine at once and remove its namespace and cgroup.

        What was written reaches the disk all the same, as the outer kernel lives on.
        """
        process = self.process
        if process:
            process.send(signal.SIGKILL)  # first, or it might boot the machine again
        cgroups.kill(self.place.outer_name(self.name))
        if process:
            process.wait(cgroups.KILL_LIMIT_S)
        network.detach(self.place, self.name, self.record.index)
        (self.folder / "pid").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            Path("/run/systemd/nspawn/propagate", self.place.outer_name(self.name)).rmdir()

    # -- private

    @property
    def _mark(self) -> str:
        return f"SANDBOX_MACHINE={self.folder}"

    def _free_number(self) -> int:
        others = (self.place.root / "hosts").glob("*/record.json")
        taken = {json.loads(path.read_text())["index"] for path in others}
        return next(number for number in range(1, network.HUB_CDN) if number not in taken)

    def _specification(self, record: Record) -> dict[str, object]:
        uplink = Path("/run/systemd/resolve/resolv.conf").exists()
        return {
            "host": self.name,
            "machine": self.place.outer_name(self.name),
            "namespace": str(network.namespace(self.place, self.name)),
            "lowers": [*record.lowers, str(root_of(Path(record.tree)))],
            "stamp": f"{record.tree}/.complete",
            **{part: str(self.folder / part) for part in ("upper", "work", "root")},
            "binds": dict(record.binds),
            # A stub resolver on the outer loopback would not answer from another network namespace.
            "resolver": "replace-uplink" if uplink else "replace-host",
        }

    def _supervise(self) -> int:
        """Start the supervisor and return its process id. Raises HostDidNotBoot when it cannot mount."""
        for part in ("work", "root"):
            (self.folder / part).mkdir(exist_ok=True)
        self.log.parent.mkdir(exist_ok=True)
        program = str(Path(__file__).with_name("supervisor.py"))
        argv = ["setsid", "--fork", "unshare", "--mount", "--propagation", "private"]
        argv += [sys.executable, "-I", program, str(self.folder / "machine.json")]
        environment = {"PATH": os.environ["PATH"], "SANDBOX_MACHINE": str(self.folder)}
        with self.log.open("a") as log:
            started = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd="/",
                check=False,
            )
        if not started.stdout.strip():
            raise HostDidNotBoot(self.name, "could not be started", self.log)
        return int(started.stdout)

    def _write(self, name: str, text: str) -> None:
        replace(self.folder / name, text)
