"""The simulated engine on a sandbox host: two profiles to switch between, faults, and what serves now."""

import json
import re
import subprocess
import time
from pathlib import Path

from sandbox.machine import Host
from tests import playbook
from tests.playbook import Run

# Two profiles, and what tells their servers apart.
RUNNING = {"old": 16, "new": 8}
# What the cases call old and new: the profiles of that name, or the other way round (see call_old).
_PROFILE_OF = {"old": "old", "new": "new"}
# Everything is fast here, so that a limit that is hit costs seconds.
PROFILE = """\
extends: sandbox
arguments:
  max_running_requests: {running}
  decode_log_interval: 10
  # As on a GPU: graphs are captured, and its log says whether they are used.
  device: cuda
  attention_backend: null
environment: {{PYTHONPATH: /opt/sandbox/simulated}}
stop_within_s: 3
gates:
  answer_within_s: 4
  first_start_within_s: 20
  start_within_s: 20
  stuck_after_s: 6
  gpus_free_within_s: 5
  settle_s: 1
  echo: {{requests: 8, concurrency: 4, within_s: 4}}
  near_limit_within_s: 5
  tok_s_floor: {{1: 100}}
  log: {{cuda_graph: true}}
"""
FAULTS = "/etc/sandbox-engine.json"
EVENTS = "/run/sglang/jobs/activation/*/events.jsonl"
# Two servers on one GPU, however short: the stand-in's claims are sockets of their holders.
_WATCH = """\
while :; do
  holders=$(grep -o '@sandbox-gpu/.*' /proc/net/unix | sort -u)
  test "$(echo "$holders" | wc -l)" -gt 1 && echo "$(date +%T)" $holders >>/root/two-servers
  sleep 0.2
done
"""


def profile(role: str) -> str:
    """The name of the profile that the cases call `old` or `new`; another name is its own."""
    return _PROFILE_OF.get(role, role)


def call_old(name: str) -> None:
    """From now on the profile of this name is the old one, and the other one is the new one."""
    [other] = RUNNING.keys() - {name}
    _PROFILE_OF.update(old=name, new=other)


def watch(host: Host) -> None:
    host.write_file("/root/watch.sh", _WATCH)
    host.run(["systemd-run", "--unit=watch", "sh", "/root/watch.sh"])


def fault(host: Host, text: str, role: str = "new") -> None:
    """From its next start the old or the new server has the fault (sandbox/simulated/engine/faults.py)."""
    when = {"max_running_requests": RUNNING[profile(role)]}
    host.write_file(FAULTS, json.dumps({"fault": text, "when": when}))


def without_faults(host: Host) -> None:
    """What a case left behind is taken away: faults, foreign holders, mounts."""
    host.shell(f"rm -f {FAULTS} /root/two-servers; systemctl stop 'foreign*'; systemctl reset-failed; true")
    host.set_gpus(release_s=0.0, used_mib={})


def deploy(host: Host, project: Path, role: str = "new", *words: str) -> Run:
    return playbook.deploy(host, "--data", f"profile={profile(role)}", *words, project=project)


def begin(host: Host, project: Path, role: str = "new", *words: str) -> subprocess.Popen[str]:
    """The same, without waiting for its end; what earlier activations told is forgotten (see wait_for_stage)."""
    host.shell(f"rm -f {EVENTS}")
    command = [str(playbook.PYINFRA), "inventory.py", "deploy.py", "-y", "--limit", host.name]
    return subprocess.Popen(
        [*command, "--data", f"profile={profile(role)}", *words],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def at_stage(host: Host, stage: str, does: str) -> None:
    """Run the script on the host as soon as the next activation is at this stage, whatever this machine does then."""
    host.shell(f"rm -f {EVENTS}")
    wait = f'until grep -qs \'"stage": "{stage}"\' {EVENTS}; do sleep 0.05; done'
    host.run(["systemd-run", "--collect", "--unit=at-stage", "timeout", "60", "sh", "-c", f"{wait}; {does}"])


def wait_for_stage(host: Host, stage: str, limit_s: float = 60) -> None:
    wait = f'until grep -qs \'"stage": "{stage}"\' {EVENTS}; do sleep 0.05; done'
    host.run(["timeout", str(limit_s), "sh", "-c", wait])


def serving(host: Host) -> str | None:
    """Whether `old` or `new` answers right now, None when none does; seen by curl and ps, not by the playbook."""
    try:
        if playbook.ask(host) != "4":
            return None
        argv = host.read_file(f"/proc/{playbook.main_pid(host)}/cmdline").replace("\0", " ")
    except (subprocess.CalledProcessError, KeyError, ValueError):
        return None
    found = re.search(r"--max-running-requests (\d+)", argv)
    return {str(RUNNING[name]): role for role, name in _PROFILE_OF.items()}.get(found.group(1)) if found else None


def serves_within(host: Host, role: str, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while serving(host) != role:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def two_servers(host: Host) -> str:
    """When two servers held GPU memory at once, "" if never."""
    return host.shell("cat /root/two-servers 2>/dev/null").stdout


def code(run: Run) -> int:
    """hostkit's exit code as the run told it: 0 when it did what was asked."""
    told = re.findall(r"\(code (\d)\)", run.text)
    return int(told[-1]) if told else run.code
