"""What is taken home from a run: journals, events, what hostkit and the driver say. No part is a must."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.gpu_host import memory
from sandbox.gpu_host.asked import server_info
from sandbox.gpu_host.machine import GpuHost

# Names a start of a unit in the journal (systemd's catalogue: SD_MESSAGE_UNIT_STARTING).
_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
_QUERIES = {
    "smi-query": ["nvidia-smi", "-q"],
    "smi-gpus": [
        "nvidia-smi",
        "--query-gpu=pci.bus_id,uuid,name,memory.total,memory.used,compute_cap,driver_version",
        "--format=csv",
    ],
    "smi-uses": ["nvidia-smi", "--query-compute-apps=gpu_bus_id,pid,used_gpu_memory", "--format=csv"],
    "proc-driver": [
        "sh",
        "-c",
        "ls -R /proc/driver/nvidia; cat /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information",
    ],
    "journal-sglang": ["journalctl", "--namespace=sglang", "--no-pager", "--output=short-precise", "--lines=20000"],
    "journal-system": ["journalctl", "--no-pager", "--output=short-precise", "--lines=4000"],
    "unit": ["systemctl", "show", "sglang-server.service"],
    "unit-text": ["systemctl", "cat", "sglang-server.service"],
    "security": ["systemd-analyze", "security", "--no-pager", "sglang-server.service"],
    "status": ["sglang-box", "status"],
    "inspect": ["sglang-box", "inspect"],
    "versions": [
        "sh",
        "-c",
        "uname -a; cat /etc/os-release; systemctl --version; cat /sys/fs/cgroup/cgroup.controllers",
    ],
}


def collect(host: GpuHost, out: Path) -> None:
    """Write all parts into `out`; what cannot be had is said in its file."""
    for name, command in _QUERIES.items():
        (out / f"{name}.txt").write_text(_said(host, command))
    (out / "server-info.json").write_text(server_info())
    (out / "dmesg.txt").write_text(_outer("sh", "-c", "dmesg | grep -iE 'xid|nvrm|nvidia' | tail -100"))
    _copy_records(host, out)
    starts = _starts(host)
    (out / "starts.json").write_text(json.dumps(memory.around(out / "memory.csv", starts), indent=1))


def pack(out: Path, target: Path) -> None:
    """All of it as one file."""
    with tarfile.open(target, "w:gz") as archive:
        archive.add(out, arcname=out.name)


def summary(target: Path, results: Mapping[str, Any]) -> None:
    target.write_text(json.dumps(results, indent=1) + "\n")


def _said(host: GpuHost, command: list[str]) -> str:
    try:
        done = host.run(command, limit_s=40)
    except (subprocess.SubprocessError, OSError) as problem:
        return f"{type(problem).__name__}: {problem}\n"
    return done.stdout + (f"\n[status {done.returncode}] {done.stderr}" if done.returncode else "")


def _outer(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout


def _copy_records(host: GpuHost, out: Path) -> None:
    """hostkit's own: verdicts, records and captures, and the events of each job."""
    for name in ("var/lib", "run"):
        target = out / f"{name.replace('/', '-')}-sglang.tar.gz"
        command = ["tar", "-C", f"{host.view}/{name}", "-czf", str(target), "sglang"]
        subprocess.run(command, capture_output=True, timeout=40, check=False)


def _starts(host: GpuHost) -> list[float]:
    words = ["journalctl", "--no-pager", "--output=json", f"MESSAGE_ID={_STARTING}", "UNIT=sglang-server.service"]
    lines = [line for line in _said(host, words).splitlines() if line.startswith("{")]
    return sorted(int(json.loads(line)["__REALTIME_TIMESTAMP"]) / 1e6 for line in lines)
