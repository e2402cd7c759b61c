"""One server, replicas behind a router, prefill and decode apart: switched by one line, and what breaks in between.

The router is the real one; the workers are the simulated engine, ready in a second.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.faults import simulated, topologies
from tests.faults.simulated import FAULTS, begin, code
from tests.faults.topologies import holders, listening, running, switch, unit_files
from tests.playbook import ask, would_change

pytestmark = pytest.mark.host

RECOVERED = "timeout 60 sh -c 'while test -e /var/lib/sglang/intent.json; do sleep 0.2; done'"


@pytest.fixture(scope="module", autouse=True)
def profiles(project: Path) -> None:
    topologies.write(project)


@pytest.fixture
def replicas(simulated_host: Host, project: Path) -> Host:
    """The host, served by two replicas behind the router, with no fault set."""
    return served_by(simulated_host, project, "replicas")


def served_by(host: Host, project: Path, name: str) -> Host:
    simulated.without_faults(host)
    if running(host) != topologies.UNITS[name] or would_change(host, "--data", f"profile={name}", project=project):
        run = switch(host, project, name)
        assert run.code == 0, run.text
    return host


def serves(host: Host, name: str) -> None:
    """The whole truth of what the host has of a topology, and nothing of another."""
    assert ask(host) == "4"
    assert running(host) == unit_files(host) == topologies.UNITS[name]
    assert listening(host) == topologies.PORTS[name]
    assert holders(host) == topologies.UNITS[name] - {"sglang-router"}


def test_one_line_switches_the_topology(old: Host, project: Path) -> None:
    for name in ("replicas", "apart", "old"):
        run = switch(old, project, name)
        assert run.code == 0, run.text
        serves(old, name)
        assert would_change(old, "--data", f"profile={name}", project=project) == []


def test_what_does_not_start_leaves_what_served(old: Host, project: Path) -> None:
    """One of the two workers dies while it loads: the other is not waited for, and the single server is back."""
    old.write_file(FAULTS, json.dumps({"fault": "die-loading", "when": {"nccl_port": 28002}}))
    run = switch(old, project, "replicas")
    assert (run.code != 0, code(run)) == (True, 3), run.text
    assert run.lines_with("OutOfMemoryError"), run.text
    serves(old, "old")


@pytest.mark.parametrize(("before", "after"), [("old", "replicas"), ("replicas", "old")])
def test_the_plug_is_pulled_while_the_topology_changes(
    sandbox: Sandbox, simulated_host: Host, project: Path, before: str, after: str
) -> None:
    host = served_by(simulated_host, project, before)
    run = begin(host, project, after)
    simulated.wait_for_stage(host, "start")
    sandbox.powercut(host.name)
    run.kill()
    run.wait()
    sandbox.up(host.name, keep=True)
    simulated.watch(host)
    host.shell(RECOVERED, check=True)
    serves(host, before)


def test_replicas_come_back_after_a_power_cut(sandbox: Sandbox, replicas: Host, project: Path) -> None:
    """systemd starts all of it; the router waits for its workers."""
    sandbox.powercut(replicas.name)
    sandbox.up(replicas.name, keep=True)
    simulated.watch(replicas)
    wait_for(replicas, f"{COUNTED} | grep -qx 2", 60)
    serves(replicas, "replicas")
    assert would_change(replicas, "--data", "profile=replicas", project=project) == []


# Workers that the router counts as healthy.
WORKERS = "127.0.0.1:30000/workers"
COUNTED = f"curl -s {WORKERS} | grep -o '\"is_healthy\":true' | wc -l"


def wait_for(host: Host, condition: str, limit_s: float) -> None:
    host.run(["timeout", str(limit_s), "sh", "-c", f"until {condition}; do sleep 0.2; done"])


def test_a_killed_replica_is_named_and_comes_back_while_the_other_answers(replicas: Host, project: Path) -> None:
    other = playbook.unit(replicas, "InvocationID", name="sglang-replica-1.service")
    replicas.run(["systemctl", "kill", "--signal=KILL", "--kill-whom=all", "sglang-replica-2"])
    assert [ask(replicas) for _ in range(20)] == ["4"] * 20
    wait_for(replicas, f"{COUNTED} | grep -qx 1", 20)
    status = replicas.run(["sglang-box", "status"], check=False)
    assert status.returncode == 1
    assert "PROBLEM  sglang-router has 1 regular of 2 regular healthy workers" in status.stdout
    wait_for(replicas, f"{COUNTED} | grep -qx 2", 60)
    assert (
        "sglang-replica-2.service was restarted 1 times" in replicas.run(["sglang-box", "status"], check=False).stdout
    )
    serves(replicas, "replicas")
    assert playbook.unit(replicas, "InvocationID", name="sglang-replica-1.service") == other
    assert would_change(replicas, "--data", "profile=replicas", project=project) == []


def test_a_replica_that_somebody_stopped_is_started_beside_the_other(replicas: Host, project: Path) -> None:
    kept = [playbook.unit(replicas, "InvocationID", name=f"sglang-{unit}.service") for unit in ("replica-1", "router")]
    replicas.run(["systemctl", "stop", "sglang-replica-2"])
    [activate] = would_change(replicas, "--data", "profile=replicas", project=project)
    assert "starts sglang-replica-2.service beside sglang-replica-1.service, sglang-router.service" in activate
    run = switch(replicas, project, "replicas")
    assert run.code == 0, run.text
    serves(replicas, "replicas")
    after = [playbook.unit(replicas, "InvocationID", name=f"sglang-{unit}.service") for unit in ("replica-1", "router")]
    assert after == kept


def test_a_replica_that_cannot_start_leaves_the_other_serving(replicas: Host, project: Path) -> None:
    replicas.run(["systemctl", "stop", "sglang-replica-2"])
    replicas.write_file(FAULTS, json.dumps({"fault": "die-loading", "when": {"nccl_port": 28002}}))
    run = switch(replicas, project, "replicas")
    assert code(run) == 6, run.text
    assert run.lines_with("goes on serving without sglang-replica-2.service"), run.text
    assert ask(replicas) == "4"
    assert running(replicas) == {"sglang-replica-1", "sglang-router"}
    simulated.without_faults(replicas)
    assert switch(replicas, project, "replicas").code == 0
    serves(replicas, "replicas")


def test_a_dead_prefill_server_takes_decode_with_it_and_both_come_back(simulated_host: Host, project: Path) -> None:
    host = served_by(simulated_host, project, "apart")
    decode = playbook.unit(host, "InvocationID", name="sglang-decode.service")
    host.run(["systemctl", "kill", "--signal=KILL", "--kill-whom=all", "sglang-prefill"])
    wait_for(host, "curl -s 127.0.0.1:30000/readiness | grep -q insufficient", 20)
    wait_for(host, "curl -s 127.0.0.1:30000/readiness | grep -q '\"healthy_workers\":2'", 60)
    serves(host, "apart")
    assert playbook.unit(host, "InvocationID", name="sglang-decode.service") != decode
    assert would_change(host, "--data", "profile=apart", project=project) == []


def test_stop_leaves_nothing_and_start_brings_it_back(simulated_host: Host, project: Path) -> None:
    host = served_by(simulated_host, project, "apart")
    host.run(["sglang-box", "stop"])
    assert (running(host), listening(host), holders(host)) == (set(), set(), set())
    host.run(["sglang-box", "start"])
    serves(host, "apart")


def test_a_worker_that_the_router_has_forgotten_is_told_to_it_again(replicas: Host) -> None:
    """Such as one that came later than the router waits for. Nothing is restarted for it."""
    before = invocation(replicas, "replica-1", "replica-2", "router")
    workers = json.loads(replicas.run(["curl", "-sS", WORKERS]).stdout)["workers"]
    [second] = [worker["id"] for worker in workers if worker["url"] == "http://127.0.0.1:30002"]
    replicas.run(["curl", "-sS", "--fail", "-X", "DELETE", f"{WORKERS}/{second}"])
    wait_for(replicas, f"{COUNTED} | grep -qx 1", 20)
    status = replicas.run(["sglang-box", "status"], check=False).stdout
    assert "it has forgotten http://127.0.0.1:30002: sglang-box start" in status
    replicas.run(["sglang-box", "start"])
    serves(replicas, "replicas")
    assert replicas.run(["sglang-box", "status"], check=False).stdout.count("PROBLEM") == 0
    assert invocation(replicas, "replica-1", "replica-2", "router") == before


# Asks without a pause, and streams an answer of some seconds again and again; what fails is written down.
CLIENT = """\
ask() { curl -sS -m 60 127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d "$1"; }
question='{"model": "tiny", "messages": [{"role": "user", "content": "What is 2+2? Answer with the number only."}]}'
on='"messages": [{"role": "user", "content": "on"}]'
count='{"model": "tiny", "stream": true, "ignore_eos": true, "max_tokens": 600, '"$on}"
while :; do
  said=$(ask "$question" 2>&1)
  case "$said" in *'"content":"4"'*) echo right;; *) echo "wrong: $said";; esac >>/root/asked
done &
while :; do
  said=$(ask "$count" 2>&1 | tail -n 2)
  case "$said" in *'[DONE]'*) echo whole;; *) echo "cut: $said";; esac >>/root/streamed
done
"""


@pytest.fixture
def client(replicas: Host) -> Iterator[Host]:
    """A client on the host that asks without a pause, all along."""
    replicas.write_file(FAULTS, json.dumps({"tokens_per_s": 100}))  # for those that start from now on
    replicas.shell("rm -f /root/asked /root/streamed")
    replicas.write_file("/root/client.sh", CLIENT)
    replicas.run(["systemd-run", "--unit=client", "bash", "/root/client.sh"])
    yield replicas
    replicas.shell("systemctl stop client")


def what_the_client_saw(host: Host) -> tuple[set[str], set[str]]:
    wait_for(host, "test -s /root/streamed", 30)
    asked, streamed = (host.read_file(f"/root/{name}").splitlines() for name in ("asked", "streamed"))
    assert len(asked) > 50
    return set(asked), set(streamed)


def invocation(host: Host, *names: str) -> list[list[str]]:
    return [playbook.unit(host, "InvocationID", name=f"sglang-{name}.service") for name in names]


def test_new_replicas_take_over_and_no_request_fails(client: Host, project: Path) -> None:
    """They start on cards that the old ones leave free; the router sends to them; the old ones end what they have."""
    router = invocation(client, "router")
    [*_, activate] = would_change(client, "--data", "profile=other", project=project)
    assert "beside what serves" in activate
    for name in ("other", "replicas"):
        run = switch(client, project, name)
        assert run.code == 0, run.text
        serves(client, name)
        assert would_change(client, "--data", f"profile={name}", project=project) == []
    assert what_the_client_saw(client) == ({"right"}, {"whole"})
    assert invocation(client, "router") == router


def test_new_replicas_that_answer_wrong_are_gone_before_a_client_meets_them(client: Host, project: Path) -> None:
    before = invocation(client, "replica-1", "replica-2", "router")
    when = {"max_running_requests": simulated.RUNNING["new"]}
    client.write_file(FAULTS, json.dumps({"fault": "corrupt-concurrent", "when": when}))
    run = switch(client, project, "other")
    assert code(run) == 3, run.text
    assert run.lines_with("identifiers verbatim"), run.text
    serves(client, "replicas")
    assert what_the_client_saw(client) == ({"right"}, {"whole"})
    assert invocation(client, "replica-1", "replica-2", "router") == before


def test_a_takeover_that_is_killed_leaves_the_old_ones_serving(client: Host, project: Path) -> None:
    before = invocation(client, "replica-1", "replica-2", "router")
    simulated.at_stage(client, "ladder", "systemctl kill --signal=KILL --kill-whom=all sglang-job-activation")
    run = switch(client, project, "other")
    assert run.code != 0, run.text
    client.shell(RECOVERED, check=True)
    serves(client, "replicas")
    assert what_the_client_saw(client) == ({"right"}, {"whole"})
    assert invocation(client, "replica-1", "replica-2", "router") == before
