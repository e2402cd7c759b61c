"""Ansible in a virtual environment of its own, made once from the hash lock, and one run of its playbook."""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.kit import timed
from sandbox import ssh
from sandbox.machine import Host

LOCK = timed.ROOT / "bench" / "ansible.requirements.lock"
PLAYBOOK = timed.ROOT / "bench" / "same_state" / "playbook.yml"
_RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


def environment() -> Path:
    """The folder of the environment for today's lock, inside of the project's own, made when it is not there."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = Path(sys.prefix) / f"ansible-{digest}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(Path(sys.prefix) / "bin" / "uv")
        timed.command(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        install = ("pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode")
        timed.command(uv, *install, "--python", str(folder / "bin" / "python"), str(LOCK))
        (folder / "complete").touch()
    return folder


def version() -> str:
    """The pinned version of ansible-core."""
    found = re.search(r"^ansible-core==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert found, f"{LOCK} pins no ansible-core"  # noqa: S101 (the lock is part of this project)
    return found.group(1)


def prepare(hosts: Sequence[Host], state: Path) -> None:
    """Let Ansible install what it needs on the hosts: its apt module brings python3-apt by itself."""
    _run(hosts, state, "--tags=packages")


def run(hosts: Sequence[Host], state: Path) -> float:
    """Wall time (s) of the playbook on the hosts. Raises timed.Failed unless it reached all and changed nothing."""
    done = _run(hosts, state)
    recap = {host: sum(map(int, counts)) for host, *counts in _RECAP.findall(done.stdout)}
    if len(recap) != len(hosts) or any(recap.values()):
        raise timed.Failed(f"Ansible was to change nothing on {len(hosts)} hosts:\n{done.stdout}")
    return done.seconds


def _run(hosts: Sequence[Host], state: Path, *options: str) -> timed.Timed:
    with tempfile.TemporaryDirectory(prefix="cp") as sockets:
        return timed.command(
            str(environment() / "bin" / "ansible-playbook"),
            f"--inventory={','.join(host.name for host in hosts)},",
            f"--forks={len(hosts)}",
            f"--extra-vars=@{state}",
            *options,
            str(PLAYBOOK),
            environment={**os.environ, **_settings(hosts[0], sockets)},
        )


def _settings(host: Host, sockets: str) -> dict[str, str]:
    """What makes Ansible fast without other software. Each run opens connections of its own, as pyinfra does."""
    return {
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_SSH_ARGS": f"-F {ssh.config(host.place)} -o ControlMaster=auto -o ControlPersist=30s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        "ANSIBLE_LOCALHOST_WARNING": "False",
    }
