"""While a checkpoint is fetched: what others see of it, and a connection or a link that is lost."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import hub, network
from sandbox.machine import Host
from sandbox.model_hub.running import Running
from tests import playbook
from tests.faults import simulated
from tests.playbook import TINY, main_pid

pytestmark = pytest.mark.host

WEIGHTS = "model.safetensors"
SLOW = {"fault": "slow", "file": WEIGHTS, "rate": 40_000}  # 20 s for the file
JOB = "sglang-job-checkpoint.service"
_IT_COMES = f"until test -e {TINY}.incomplete/{WEIGHTS}; do sleep 0.05; done; sleep 2"


@pytest.fixture
def fetching(old: Host, project: Path) -> Iterator[subprocess.Popen[str]]:
    """A deploy that waits for a slow fetch, on a host that serves and has lost its checkpoint."""
    models = hub.running(old.place)
    models.set_faults(SLOW)
    models.forget()
    old.shell(f"rm -rf {TINY} {TINY}.* /var/lib/sglang/checkpoints", check=True)
    controller = simulated.begin(old, project, "old")
    old.run(["timeout", "60", "sh", "-c", _IT_COMES], limit_s=70)
    yield controller
    controller.kill()
    controller.communicate()
    models.set_faults()


def came_once(host: Host, models: Running) -> bool:
    return host.shell(f"sha256sum {TINY}/{WEIGHTS}").returncode == 0 and models.sent(file=WEIGHTS) == 822_680


def test_status_shows_how_far_it_is_and_the_server_may_be_stopped(
    old: Host, project: Path, fetching: subprocess.Popen[str]
) -> None:
    status = old.run(["sglang-box", "status"], check=False).stdout
    [line] = [line for line in status.splitlines() if line.startswith("job ")]
    assert "checkpoint: " in line and " MB/s, " in line and "of 5 files whole" in line
    stopped = old.run(["sglang-box", "stop"], check=False)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    shown = playbook.pyinfra("commands/status.py", "--limit", old.name, project=project).text
    assert "job checkpoint" in shown, shown
    text = fetching.communicate(timeout=120)[1]
    assert fetching.returncode != 0
    assert "Nothing was restarted" in text, "who stopped it meanwhile had a reason"
    run = simulated.deploy(old, project, "old")
    assert (run.code, simulated.serving(old)) == (0, "old"), run.text


@pytest.mark.parametrize("loss", ["connection", "link"])
def test_a_fetch_goes_on_without_its_connection(
    old: Host, project: Path, fetching: subprocess.Popen[str], loss: str
) -> None:
    pid = main_pid(old)
    if loss == "connection":
        old.shell("kill -KILL $(pgrep -P $(systemctl show --value --property=MainPID ssh))")  # its own as well
    else:
        device = network.device(old.place, old.record.index)
        subprocess.run(["ip", "link", "set", device, "down"], check=True)
        fetching.kill()
        subprocess.run(["ip", "link", "set", device, "up"], check=True)
    fetching.communicate(timeout=60)
    assert fetching.returncode != 0
    assert old.shell(f"systemctl is-active {JOB}").stdout.strip() == "active"
    run = simulated.deploy(old, project, "old")
    assert run.code == 0, run.text
    assert came_once(old, hub.running(old.place)), "the fetch that was under way was joined"
    assert main_pid(old) == pid
