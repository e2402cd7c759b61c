"""Whether the machine sees its GPU as the playbook needs it, before anything is deployed: facts, one JSON document."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from sandbox.gpu_host.machine import GpuHost

TEMPLATE = Path(__file__).resolve().parents[2] / "templates/worker.service.j2"
_HOLDER, _HARDENED = "probe-holder.service", "probe-hardened.service"
_USES = ["nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits"]
_HOLD = "import torch, time; x = torch.ones(1 << 30, dtype=torch.uint8, device='cuda'); time.sleep(60)"
_FIRST_IMPORT_S = 100  # of torch, from a disk that nobody has read yet
_MULTIPLY = (
    "import torch; x = torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16); y = x @ x; "
    "torch.cuda.synchronize(); print('product', float(y.float().std()), torch.cuda.get_device_name())"
)


def facts(host: GpuHost, python: str) -> dict[str, Any]:
    """`python` is an interpreter with torch, in the machine."""
    seen = {
        "systemd": _text(host, "systemctl", "is-system-running"),
        "failed": _text(host, "systemctl", "--no-legend", "--failed"),
        "kernel": _text(host, "uname", "-r"),
        "controllers": _text(host, "cat", "/sys/fs/cgroup/cgroup.controllers"),
        "nvidia-smi": _text(host, "nvidia-smi", "-L"),
        "minors": _text(host, "sh", "-c", "grep -H Minor /proc/driver/nvidia/gpus/*/information"),
        "nodes": _text(host, "sh", "-c", "ls -l /dev/nvidia*"),
        "compiler": _text(host, "sh", "-c", "gcc --version | head -1; /usr/local/cuda/bin/nvcc --version | tail -2"),
    }
    return {**seen, "processes": _processes(host, python), "hardened": hardened(host, python)}


def compute_capability(host: GpuHost) -> str:
    """Of the first card, as "9.0"."""
    return _text(host, "nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").splitlines()[0].strip()


def _processes(host: GpuHost, python: str) -> dict[str, Any]:
    """A process inside holds GPU memory: the driver must list it under the process id that it has inside."""
    host.run(
        ["systemd-run", f"--unit={_HOLDER}", "--collect", "--setenv=PYTHONDONTWRITEBYTECODE=1", python, "-c", _HOLD]
    )
    pid = _text(host, "systemctl", "show", "--value", "--property=MainPID", _HOLDER)
    began, listed = time.monotonic(), ""
    while not listed and time.monotonic() - began < _FIRST_IMPORT_S and host.pids(_HOLDER):
        listed = _text(host, *_USES)
        time.sleep(0.2)
    took = round(time.monotonic() - began, 1)
    outer = [number for number, command in host.pids(_HOLDER).items() if "torch" in command]
    said = _text(host, "journalctl", "--no-pager", "--output=cat", f"--unit={_HOLDER}", "--lines=5")
    used = _text(host, "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    host.run(["systemctl", "stop", _HOLDER])
    right = any(line.split(",")[0].strip() == pid for line in listed.splitlines())
    seen = {"pid_inside": pid, "pid_outside": outer, "listed": listed, "after_s": took}
    return {**seen, "right": right, "used_mib": used, "said": said}


def hardened(host: GpuHost, python: str) -> dict[str, Any]:
    """A CUDA product as the service user would compute it: in a unit with the restrictions of the server's own."""
    host.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "probe"])
    host.run(["install", "-d", "-o", "probe", "-m", "700", "/var/cache/probe"])
    minors = re.findall(r"/dev/nvidia(\d+)", _text(host, "sh", "-c", "ls /dev/nvidia*"))
    node = _text(host, "sh", "-c", "cat /sys/bus/pci/devices/*/numa_node | sort -n | tail -1")
    text = unit_text(TEMPLATE.read_text(), minors, python, int(node) if node.isdecimal() else None)
    Path(f"{host.view}/etc/systemd/system/{_HARDENED}").write_text(text)
    host.run(["systemctl", "daemon-reload"])
    with contextlib.suppress(subprocess.TimeoutExpired):  # then what it said by now is all that is told
        host.run(["systemctl", "start", _HARDENED], limit_s=_FIRST_IMPORT_S)
    said = _text(host, "journalctl", "--no-pager", "--output=cat", f"--unit={_HARDENED}", "--lines=25")
    return {"result": _text(host, "systemctl", "show", "--property=Result,ExecMainStatus", _HARDENED), "said": said}


def unit_text(template: str, minors: list[str], python: str, numa_node: int | None = None) -> str:
    """The [Service] restrictions of the server's template, around a product of two matrices."""
    restrictions = template.partition("LimitMEMLOCK")[1:]
    lines = "".join(restrictions).partition("[Install]")[0].splitlines()
    left_out = ("#", "{%") if numa_node is not None else ("#", "{%", "NUMA", "CPUAffinity")
    kept = [
        line.replace("{{ unit.numa_node }}", str(numa_node)) for line in lines if line and not line.startswith(left_out)
    ]
    filled: list[str] = []
    for line in kept:
        many = "{{ gpu.minor }}" in line
        filled += [line.replace("{{ gpu.minor }}", minor) for minor in minors] if many else [line]
    body = [line.replace("{{ plan.cache_folder }}", "/var/cache/probe") for line in filled]
    head = ["[Service]", "Type=oneshot", "User=probe", "Environment=HOME=/var/cache/probe PYTHONDONTWRITEBYTECODE=1"]
    return "\n".join([*head, f'ExecStart={python} -c "{_MULTIPLY}"', *body]) + "\n"


def _text(host: GpuHost, *command: str) -> str:
    done = host.run(list(command), limit_s=60)
    return (done.stdout or done.stderr).strip()
