"""A machine that lost its power starts its server at once, and every byte of the checkpoint is checked behind it."""

import subprocess
from pathlib import Path

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests.faults import simulated
from tests.playbook import TINY, main_pid

pytestmark = pytest.mark.host

WEIGHTS = "model.safetensors"
JOB = "sglang-job-check.service"
# Another content of the same size, under the old times: no stamp can see it.
_IN_SECRET = f"""
cd {TINY} && touch -r {WEIGHTS} /root/times && printf x | dd of={WEIGHTS} bs=1 seek=1000 conv=notrunc &&
touch -r /root/times {WEIGHTS}
"""


def up_again(sandbox: Sandbox, host: Host) -> None:
    sandbox.up(host.name, keep=True)
    simulated.watch(host)
    until(host, "curl -sf -m 2 http://127.0.0.1:30000/health")


def until(host: Host, condition: str) -> None:
    host.run(["timeout", "90", "sh", "-c", f"until {condition} >/dev/null; do sleep 0.2; done"], limit_s=100)


def told(host: Host, unit: str) -> str:
    words = ["journalctl", "--namespace=sglang", "--boot", f"--unit={unit}", "--output=cat", "--no-pager"]
    return host.run(words).stdout


def test_a_file_that_a_power_cut_has_damaged_is_found_behind_the_server(
    sandbox: Sandbox, old: Host, project: Path
) -> None:
    old.shell(_IN_SECRET, check=True)
    sandbox.powercut(old.name)
    up_again(sandbox, old)
    assert simulated.serving(old) == "old", "the server starts first"
    until(old, f"journalctl --namespace=sglang --boot --unit={JOB} --grep='the checkpoint is damaged'")
    assert f"{WEIGHTS} has other content than the manifest says" in told(old, JOB)
    until(old, "journalctl --namespace=sglang --boot --identifier=sglang-notify --grep=sglang-job-check")
    status = old.run(["sglang-box", "status"], check=False)
    assert f"PROBLEM  checkpoint: {TINY} was never checked: run the playbook" in status.stdout
    assert status.returncode != 0
    start = old.run(["sglang-box", "start"], check=False)
    assert "was never checked" in start.stdout + start.stderr, "no release starts from it"
    pid = main_pid(old)
    run = simulated.deploy(old, project, "old")
    assert simulated.code(run) == 6, run.text
    assert run.lines_with("sglang-server.service was started from a bad file: run again, which starts it anew")
    run = simulated.deploy(old, project, "old")
    assert run.code == 0, run.text
    assert main_pid(old) != pid
    wanted = subprocess.run(["sh", "-c", "sha256sum *"], cwd="sandbox/checkpoint/tiny", capture_output=True, text=True)
    assert old.shell(f"cd {TINY} && sha256sum *; rm -r {TINY}.aside").stdout == wanted.stdout


def test_after_a_shutdown_nothing_is_checked(sandbox: Sandbox, old: Host) -> None:
    sandbox.reboot(old.name)
    simulated.watch(old)
    until(old, "curl -sf -m 2 http://127.0.0.1:30000/health")
    until(old, "systemctl is-active sglang-check")
    shown = old.run(["journalctl", "--boot", "--unit=sglang-check", "--output=cat"]).stdout
    assert "this machine was shut down as it should" in shown
    assert told(old, JOB) in ("", "-- No entries --\n")
