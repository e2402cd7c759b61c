"""What a fresh host's disk holds beyond the base tree: access, registries, GPU stand-in, checkpoint."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sandbox import network, ssh
from sandbox.gpu.install import install_gpus
from sandbox.place import Place
from sandbox.registries import Indexes, proxies

HERE = Path(__file__).parent
# The checkpoint's commit, as git and sandbox/model_hub name its files.
TINY = "163a5f632b10f3c528da45b99f2daee7e5a7206b"
# Folders of the project that a host gets as they are; one that is not there is left out.
COPIES = {
    HERE / "checkpoint" / "tiny": "opt/sandbox/tiny",  # for servers that are started by hand
    HERE / "cpu": "opt/sandbox/cpu",
    HERE / "simulated": "opt/sandbox/simulated",
}


def furnish(place: Place, disk: Path) -> None:
    """Write all of it into `disk`, the empty writable layer of a host that does not run."""
    previous = os.umask(0o022)  # or a careful administrator's umask would lock the host's own users out of /
    try:
        disk.mkdir(parents=True)
        _access(place, disk)
        put_registries(disk, network.hub_addresses(place))
        install_gpus(disk)
        put_copies(disk)
    finally:
        os.umask(previous)


def put_copies(disk: Path) -> None:
    """Copy the project's own folders that a host has."""
    for source, target in COPIES.items():
        if source.is_dir():
            shutil.copytree(source, disk / target, ignore=shutil.ignore_patterns("__pycache__"))


def put_checkpoint(disk: Path) -> None:
    """Copy the checkpoint to where a release looks for it, for a machine that no hub is beside."""
    shutil.copytree(HERE / "checkpoint" / "tiny", disk / "srv/models/sandbox/tiny" / TINY)


def put(disk: Path, path: str, text: str, mode: int = 0o644) -> None:
    """Write a file at an absolute path of the host, with the folders above it."""
    target = disk / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)


def _access(place: Place, disk: Path) -> None:
    key = ssh.host_key(place)
    put(disk, "/etc/ssh/ssh_host_ed25519_key", key.read_text(), 0o600)
    put(disk, "/etc/ssh/ssh_host_ed25519_key.pub", ssh.public(key) + "\n")
    put(disk, "/etc/ssh/authorized_keys", ssh.public(ssh.client_key(place)) + "\n")


def put_registries(disk: Path, direct: Sequence[str] = ()) -> None:
    """Have pip, uv and services on the host reach the registries as this machine does, and `direct` by no proxy."""
    indexes = Indexes.of_pip()
    put(disk, "/etc/pip.conf", indexes.pip_conf())
    put(disk, "/etc/uv/uv.toml", indexes.uv_toml())
    if settings := proxies():
        settings["no_proxy"] = ",".join(filter(None, [settings.get("no_proxy"), *direct]))
        put(disk, "/etc/environment", "".join(f'{name}="{value}"\n' for name, value in settings.items()))
        # Services read no /etc/environment.
        assignments = " ".join(f'"{name}={value}"' for name, value in settings.items())
        put(disk, "/etc/systemd/system.conf.d/proxy.conf", f"[Manager]\nDefaultEnvironment={assignments}\n")
