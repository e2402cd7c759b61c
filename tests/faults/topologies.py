"""The three topologies with the simulated engine behind the real router, and what the host has of each."""

import re
from collections.abc import Iterable
from pathlib import Path

from sandbox.machine import Host
from tests import playbook
from tests.faults import simulated
from tests.playbook import Run

UNITS = {
    "old": {"sglang-server"},
    "replicas": {"sglang-replica-1", "sglang-replica-2", "sglang-router"},
    "other": {"sglang-replica-51", "sglang-replica-52", "sglang-router"},
    "apart": {"sglang-prefill", "sglang-decode", "sglang-router"},
}
PORTS = {"old": {30000}, "replicas": {30000, 30001, 30002, 28001, 28002, 29000}}
PORTS["other"] = {30000, 30051, 30052, 28051, 28052, 29000}
PORTS["apart"] = {30000, 30100, 30200, 28100, 28200, 8998, 29000}

_ROUTER = """\
router_engine: router-0.3.2
router:
  policy: round_robin
  health_check_interval_secs: 1
  health_check_timeout_secs: 5
  health_failure_threshold: 1
  health_success_threshold: 1
  worker_startup_check_interval: 1
"""
_REPLICAS = "topology: replicas\nreplicas: 2\n"
# `other` is `replicas` with another argument: a release that fits beside it.
_OF_EACH = {"replicas": _REPLICAS, "other": _REPLICAS, "apart": "topology: pd\n"}
_RUNNING = {"other": simulated.RUNNING["new"]}


def profile(name: str) -> str:
    """`old` of simulated.py in another topology, with a claim that fits any card."""
    text = simulated.PROFILE.format(running=_RUNNING.get(name, simulated.RUNNING["old"]))
    claim = "environment: {PYTHONPATH: /opt/sandbox/simulated, SANDBOX_GPU_CLAIM: cuda:0/61440}"
    own = "environment: {PYTHONPATH: /opt/sandbox/simulated}"
    assert own in text
    text = text.replace(own, claim).replace("stop_within_s: 3", "stop_within_s: 20")
    if name == "apart":
        text = text.replace("arguments:\n", "arguments:\n  disaggregation_transfer_backend: nixl\n")
    return text + _OF_EACH[name] + _ROUTER


def write(project: Path) -> None:
    for name in _OF_EACH:
        (project / f"group_data/profiles/{name}.yaml").write_text(profile(name))


def switch(host: Host, project: Path, name: str) -> Run:
    return playbook.deploy(host, "--data", f"profile={name}", project=project)


def running(host: Host) -> set[str]:
    """Units of ours that are active, as systemctl lists them."""
    rows = host.run(["systemctl", "list-units", "--plain", "--no-legend", "--state=active", "sglang-*.service"]).stdout
    return _of_a_topology(row.split()[0] for row in rows.splitlines())


def unit_files(host: Host) -> set[str]:
    """Units of ours that have a file, but for those that every topology has."""
    found = host.shell("cd /etc/systemd/system && ls sglang-*.service").stdout.split()
    return _of_a_topology(found)


def _of_a_topology(services: Iterable[str]) -> set[str]:
    names = (service.removesuffix(".service") for service in services)
    return {name for name in names if re.fullmatch(r"sglang-(server|replica-\d+|prefill|decode|router)", name)}


def listening(host: Host) -> set[int]:
    """Ports below those that the kernel hands out by itself, but for sshd's."""
    rows = host.run(["ss", "-Hltn"]).stdout.splitlines()
    ports = {int(row.split()[3].rpartition(":")[2]) for row in rows}
    return {port for port in ports if 1024 < port < 32768}


def holders(host: Host) -> set[str]:
    """Units that hold memory of a GPU."""
    pids = host.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]).stdout.split()
    groups = [host.read_file(f"/proc/{pid}/cgroup").rpartition("/")[2].strip() for pid in pids]
    return {group.removesuffix(".service") for group in groups}
