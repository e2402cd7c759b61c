"""Put the GPU stand-in onto a host's disk: command, device nodes, /proc/driver/nvidia, state."""

from __future__ import annotations

import shutil
from pathlib import Path

from sandbox.gpu import procfs
from sandbox.gpu.devices import INVENTORY
from sandbox.gpu.state import State

HERE = Path(__file__).parent
UNIT = "etc/systemd/system/sandbox-gpu.service"
# -I -S: without the caller's environment and site packages it starts in some 20 ms, and is not led astray.
COMMAND = """\
#!/usr/bin/python3 -IS
import sys

sys.path.insert(0, "/opt")
from sandbox.gpu.nvidia_smi import main

sys.exit(main(sys.argv[1:]))
"""
SERVICE = """\
[Unit]
Description=Show the GPU stand-in under /proc/driver/nvidia
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
Environment=PYTHONPATH=/opt
ExecStart=/usr/bin/python3 -S -m sandbox.gpu.procfs
ExecStart=/bin/mount --bind /opt/sandbox/gpu/driver /proc/driver
ExecReload=/usr/bin/python3 -S -m sandbox.gpu.procfs

[Install]
WantedBy=sysinit.target
"""
# Major numbers: 195 is NVIDIA's own; that of the memory driver is drawn at boot, here a free one.
NODES = [("nvidiactl", "195:255"), ("nvidia-uvm", "510:0"), ("nvidia-uvm-tools", "510:1")]


def install_gpus(disk: Path) -> None:
    """Write the stand-in into `disk`, the writable layer of a host that does not run."""
    shutil.copytree(HERE, disk / "opt/sandbox/gpu", ignore=shutil.ignore_patterns("__pycache__", "install.py"))
    _write(disk / "usr/bin/nvidia-smi", COMMAND, 0o755)
    _write(disk / "etc/tmpfiles.d/sandbox-gpu.conf", device_nodes())
    _write(disk / UNIT, SERVICE)
    wanted = disk / "etc/systemd/system/sysinit.target.wants/sandbox-gpu.service"
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.symlink_to(f"/{UNIT}")
    _write(disk / State.PATH.lstrip("/"), State().to_json())
    procfs.render(disk, State())


def device_nodes() -> str:
    """Return the tmpfiles.d lines that make the nodes at each boot.

    No driver stands behind them: open() says ENXIO, or EPERM where a unit's DeviceAllow= omits the node.
    """
    nodes = [*NODES, *((f"nvidia{gpu.minor}", f"195:{gpu.minor}") for gpu in INVENTORY)]
    return "".join(f"c /dev/{name} 0666 root root - {numbers}\n" for name, numbers in sorted(nodes))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
