"""The playbook as its user has it: a copy of the project whose inventory names the machine, and runs of pyinfra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree
from typing import Any

import yaml

from sandbox.gpu_host.machine import ADDRESS, NAME, PORT, GpuHost

ROOT = Path(__file__).resolve().parents[2]
PROFILES = Path(__file__).with_name("profiles")
STAND_IN_PROFILES = Path(__file__).with_name("stand_in")
_PREFIX = "gpu-host-"


def filled(profile: str, engine: str, compute_capability: str) -> str:
    """The text of a profile with what is known only where it runs."""
    return profile.replace("engine: ENGINE", f"engine: {engine}").replace("COMPUTE_CAPABILITY", compute_capability)


@dataclass(frozen=True)
class Run:
    """One run of pyinfra: exit code, what `--json` printed ({} when nothing was), its log, and how long it took (s)."""

    code: int
    report: dict[str, Any]
    log: str
    seconds: float

    @property
    def changed(self) -> int | None:
        return self.report["results"]["totals"]["success"] if "results" in self.report else None

    def lines_with(self, part: str) -> list[str]:
        return [line.strip() for line in self.log.splitlines() if part in line]


class Project:
    """A copy of the project in the state folder."""

    def __init__(self, host: GpuHost) -> None:
        self.host = host
        self.folder = host.folder / "project"

    @property
    def group_data(self) -> Path:
        return self.folder / "group_data"

    def make(self) -> None:
        """Copy the project anew, with an inventory that names the machine."""
        rmtree(self.folder, ignore_errors=True)
        left_out = ignore_patterns(".git", ".venv", ".gpu", ".*_cache", "__pycache__", "tests", "results")
        copytree(ROOT, self.folder, ignore=left_out)
        reach = {
            "ssh_hostname": ADDRESS,
            "ssh_port": PORT,
            "ssh_user": "root",
            "ssh_key": str(self.host.folder / "keys" / "client"),
            "ssh_known_hosts_file": str(self.host.folder / "known_hosts"),
            "ssh_strict_host_key_checking": "yes",
        }
        (self.folder / "inventory.py").write_text(f"gpu_hosts = [({NAME!r}, {reach!r})]\n")

    def put_profiles(self, engine: str, compute_capability: str, stand_in: bool) -> None:
        """The profiles of this run, for the card that is here."""
        for path in (STAND_IN_PROFILES if stand_in else PROFILES).glob("*.yaml"):
            text = filled(path.read_text(), engine, compute_capability)
            (self.group_data / "profiles" / f"{_PREFIX}{path.name}").write_text(text)

    def put_engine(self, name: str, data: Mapping[str, Any], lock: str) -> None:
        """An engine beside those of the project."""
        (self.group_data / "engines" / f"{name}.yaml").write_text(yaml.safe_dump(dict(data), sort_keys=False))
        (self.group_data / "engines" / str(data["lock"])).write_text(lock)

    def serve(self, profile: str) -> None:
        """The one line that an operator changes."""
        (self.group_data / "gpu_hosts.py").write_text(f'profile = "{_PREFIX}{profile}"\n')

    def deploy(self, *words: str, limit_s: float) -> Run:
        """`pyinfra inventory.py deploy.py -y --json`. Past the limit it is killed, and its code is 124."""
        return self.pyinfra("deploy.py", "-y", "--json", *words, limit_s=limit_s)

    def pyinfra(self, *words: str, limit_s: float) -> Run:
        began = time.monotonic()
        command = [sys.executable, "-m", "pyinfra", "inventory.py", *words]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with (self.folder / "stdout").open("w+") as out, (self.folder / "stderr").open("w+") as log:
            try:
                code = subprocess.run(
                    command,
                    cwd=self.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    timeout=limit_s,
                ).returncode
            except subprocess.TimeoutExpired:
                code = 124
        said, logged = (self.folder / "stdout").read_text(), (self.folder / "stderr").read_text()
        report = json.loads(said) if said.startswith("{") else {}
        return Run(code, report, logged + ("" if report else said), round(time.monotonic() - began, 1))
