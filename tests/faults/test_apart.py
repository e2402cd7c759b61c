"""Real prefill and real decode behind the real router, the KV cache over the real NIXL and UCX.

A cache that arrived wrong would give wrong answers: the answers are the proof of the transfer.
"""

from collections.abc import Iterator

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.faults.topologies import PORTS, UNITS, listening, running, unit_files
from tests.playbook import Run, ask, unit

pytestmark = pytest.mark.host

SERVICES = ("sglang-prefill.service", "sglang-decode.service", "sglang-router.service")


@pytest.fixture(scope="module")
def deployed(sandbox: Sandbox, engine_is_kept: None) -> Iterator[tuple[Host, Run]]:
    sandbox.down("apart")
    [host] = sandbox.up("apart")
    yield host, playbook.deploy(host, "--data", "profile=sandbox-pd")
    sandbox.down(host.name)


@pytest.fixture
def apart(deployed: tuple[Host, Run]) -> Host:
    assert deployed[1].code == 0, deployed[1].text
    return deployed[0]


def test_answers_are_right_with_prefill_and_decode_apart(deployed: tuple[Host, Run]) -> None:
    host, run = deployed
    assert run.code == 0, run.text
    assert run.lines_with("identifiers verbatim: 24 identifiers"), run.text
    assert (ask(host), ask(host, "Repeat exactly: 9f-a2b7c")) == ("4", "9f-a2b7c")
    assert (running(host), unit_files(host)) == (UNITS["apart"], UNITS["apart"])
    assert listening(host) == PORTS["apart"]
    log = host.run(["journalctl", "--namespace=sglang", "--unit=sglang-decode", "--output=cat", "--no-pager"]).stdout
    assert "NIXL KVManager initialized with backend: UCX" in log


@pytest.mark.parametrize("name", SERVICES)
def test_the_units_have_no_fault_and_may_do_little(apart: Host, name: str) -> None:
    """As low as the others: what CUDA IPC forbids, PrivateIPC= and PrivateUsers=, no worker of this project has."""
    verified = apart.run(["systemd-analyze", "verify", f"/etc/systemd/system/{name}"], check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    last = apart.run(["systemd-analyze", "security", "--no-pager", name]).stdout.strip().splitlines()[-1]
    assert float(last.split(": ")[1].split()[0]) <= 2.0


def test_a_dead_decode_server_comes_back_and_finds_prefill_again(apart: Host) -> None:
    prefill = unit(apart, "InvocationID", name="sglang-prefill.service")
    apart.run(["systemctl", "kill", "--signal=KILL", "--kill-whom=all", "sglang-decode"])
    ready = "curl -s 127.0.0.1:30000/readiness | grep -q '\"healthy_workers\":2'"
    apart.run(["timeout", "30", "sh", "-c", f"while {ready}; do sleep 0.2; done"])
    apart.run(["timeout", "240", "sh", "-c", f"until {ready}; do sleep 0.5; done"])
    assert ask(apart) == "4"
    assert unit(apart, "InvocationID", name="sglang-prefill.service") == prefill
