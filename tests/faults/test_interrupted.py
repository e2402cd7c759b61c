"""Runs that are cut off: the controller killed, the connection cut, the host's plug pulled. The next run converges."""

import itertools
import signal
import subprocess
from pathlib import Path

import pytest

from sandbox import network
from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.playbook import ask, deploy, would_change

pytestmark = pytest.mark.host

STEPS_OF_A_FIRST_RUN = 9


def start(host: Host, *words: str) -> subprocess.Popen[str]:
    command = [str(playbook.PYINFRA), "inventory.py", "deploy.py", "-y", "--limit", host.name, *words]
    return subprocess.Popen(
        command,
        cwd=playbook.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(run: subprocess.Popen[str], part: str) -> bool:
    """Read what the run says until a line has the part; False when it ended before."""
    return any(part in line for line in run.stderr or ())


def kill(run: subprocess.Popen[str], number: signal.Signals) -> None:
    run.send_signal(number)
    run.wait(timeout=30)


def converges(host: Host) -> None:
    run = deploy(host)
    assert run.code == 0, run.text
    assert ask(host) == "4"
    assert would_change(host) == []
    leftovers = host.shell(
        "find /etc /var/lib/sglang /opt/sglang /run/sglang -name '*.new' -o -name '*.partial'"
    ).stdout
    assert leftovers == ""


def test_a_controller_killed_at_every_step_in_turn(bare: Host) -> None:
    """TERM and KILL by turns, each run one step further than the last one."""
    kinds = itertools.cycle([signal.SIGTERM, signal.SIGKILL])
    for kind in itertools.islice(kinds, STEPS_OF_A_FIRST_RUN):
        run = start(bare)
        # The second operation begins when the first one is done: every run comes one step further than the last.
        if not (wait_for(run, "Starting operation") and wait_for(run, "Starting operation")):
            break
        kill(run, kind)
    converges(bare)


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_a_controller_killed_while_the_engine_is_installed(bare: Host, kind: signal.Signals) -> None:
    bare.shell("rm -r /opt/sglang/engines/*", check=True)
    run = start(bare)
    assert wait_for(run, "packages ")
    kill(run, kind)
    converges(bare)


@pytest.mark.parametrize("moment", ["Add the service user", "Check sandbox/tiny", "Activate release", "start: "])
def test_a_host_whose_plug_is_pulled(sandbox: Sandbox, bare: Host, moment: str) -> None:
    run = start(bare)
    assert wait_for(run, moment)
    sandbox.powercut(bare.name)
    kill(run, signal.SIGKILL)
    sandbox.up(bare.name, keep=True)
    converges(bare)


def test_a_host_whose_plug_is_pulled_while_the_engine_is_installed(sandbox: Sandbox, bare: Host) -> None:
    bare.shell("rm -r /opt/sglang/engines/*", check=True)
    run = start(bare)
    assert wait_for(run, "packages ")
    sandbox.powercut(bare.name)
    kill(run, signal.SIGKILL)
    sandbox.up(bare.name, keep=True)
    converges(bare)


def test_a_connection_that_is_cut_while_the_server_starts(sandbox: Sandbox, bare: Host) -> None:
    """The run gives up within a minute and says so; the activation goes on, and the next run finds it done."""
    device = network.device(bare.place, bare.record.index)
    run = start(bare)
    assert wait_for(run, "start: ")
    subprocess.run(["ip", "link", "set", device, "down"], check=True)
    try:
        assert run.wait(timeout=90) != 0
    finally:
        subprocess.run(["ip", "link", "set", device, "up"], check=True)
    converges(bare)


def test_two_controllers_at_once_do_the_work_once(bare: Host) -> None:
    first, second = start(bare), start(bare)
    texts = [run.communicate(timeout=400)[1] for run in (first, second)]
    assert ask(bare) == "4", texts
    pid = playbook.main_pid(bare)
    converges(bare)
    assert playbook.main_pid(bare) == pid
    starts = bare.run(["journalctl", "--unit=sglang-server", "--grep=Started sglang-server", "-o", "cat"]).stdout
    assert len(starts.splitlines()) == 1


def test_one_broken_host_fails_alone(sandbox: Sandbox, host: Host, bare: Host, tmp_path: Path) -> None:
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
