"""Runs that are cut off: the controller killed, the connection cut, the host's plug pulled. The next run converges."""

import itertools
import signal
import subprocess
from pathlib import Path

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.faults.simulated import begin, deploy, profile, serving
from tests.playbook import ask, would_change

pytestmark = pytest.mark.host

STEPS_OF_A_FIRST_RUN = 9


def wait_for(run: subprocess.Popen[str], part: str) -> bool:
    """Read what the run says until a line has the part; False when it ended before."""
    return any(part in line for line in run.stderr or ())


def kill(run: subprocess.Popen[str], number: signal.Signals) -> None:
    run.send_signal(number)
    run.wait(timeout=30)


def converges(host: Host, project: Path) -> None:
    run = deploy(host, project)
    assert (run.code, serving(host)) == (0, "new"), run.text
    assert would_change(host, "--data", f"profile={profile('new')}", project=project) == []
    leftovers = host.shell(
        "find /etc /var/lib/sglang /opt/sglang /run/sglang -name '*.new' -o -name '*.partial'"
    ).stdout
    assert leftovers == ""


def test_a_controller_killed_at_every_step_in_turn(bare: Host, project: Path) -> None:
    """TERM and KILL by turns, each run one step further than the last one."""
    kinds = itertools.cycle([signal.SIGTERM, signal.SIGKILL])
    for kind in itertools.islice(kinds, STEPS_OF_A_FIRST_RUN):
        run = begin(bare, project)
        # The second operation begins when the first one is done: every run comes one step further than the last.
        if not (wait_for(run, "Starting operation") and wait_for(run, "Starting operation")):
            break
        kill(run, kind)
    converges(bare, project)


def test_a_controller_killed_while_the_engine_is_installed(bare: Host, project: Path) -> None:
    bare.shell("rm -r /opt/sglang/engines/*", check=True)
    run = begin(bare, project)
    assert wait_for(run, "packages ")
    kill(run, signal.SIGKILL)
    converges(bare, project)


@pytest.mark.parametrize("moment", ["Add the service user", "Fetch sandbox/tiny", "Activate release", "start: "])
def test_a_host_whose_plug_is_pulled(sandbox: Sandbox, bare: Host, project: Path, moment: str) -> None:
    run = begin(bare, project)
    assert wait_for(run, moment)
    sandbox.powercut(bare.name)
    kill(run, signal.SIGKILL)
    sandbox.up(bare.name, keep=True)
    converges(bare, project)


def test_a_host_whose_plug_is_pulled_while_the_engine_is_installed(sandbox: Sandbox, bare: Host, project: Path) -> None:
    bare.shell("rm -r /opt/sglang/engines/*", check=True)
    run = begin(bare, project)
    assert wait_for(run, "packages ")
    sandbox.powercut(bare.name)
    kill(run, signal.SIGKILL)
    sandbox.up(bare.name, keep=True)
    converges(bare, project)


def test_two_controllers_at_once_do_the_work_once(bare: Host, project: Path) -> None:
    first, second = begin(bare, project), begin(bare, project)
    texts = [run.communicate(timeout=400)[1] for run in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], texts
    assert serving(bare) == "new", texts
    pid = playbook.main_pid(bare)
    converges(bare, project)
    assert playbook.main_pid(bare) == pid
    starts = bare.run(["journalctl", "--unit=sglang-server", "--grep=Started sglang-server", "-o", "cat"]).stdout
    assert len(starts.splitlines()) == 1


def test_one_broken_host_fails_alone(sandbox: Sandbox, host: Host, bare: Host) -> None:
    """Three hosts in one run: one serves already, one is bare, one has lost its GPUs."""
    [broken] = sandbox.up("broken")
    try:
        broken.set_gpus(failure="Unable to determine the device handle for GPU0: Unknown Error")
        limits = itertools.chain.from_iterable(("--limit", one.name) for one in (host, bare, broken))
        run = playbook.pyinfra("deploy.py", "-y", "--json", *limits, limit_s=400)
        assert run.code != 0
        assert run.lines_with("[broken]")
        assert any("Unable to determine the device handle" in line for line in run.lines_with("NVIDIA driver")), (
            run.text
        )
        assert [ask(host), ask(bare)] == ["4", "4"]
        assert broken.shell("id sglang").returncode != 0, "the broken host was not touched"
    finally:
        sandbox.down(broken.name)
