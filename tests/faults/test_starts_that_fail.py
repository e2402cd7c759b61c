"""A server that dies while starting, a machine that dies, a controller that dies: what the host does then."""

import json
from pathlib import Path

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.playbook import ask, deploy, main_pid, unit

pytestmark = pytest.mark.host

DIES = "extends: sandbox\nenvironment: {SANDBOX_ENGINE_FAULT: die-loading}\n"
OTHER = "extends: sandbox\narguments: {max_running_requests: 8}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy = playbook.copy_of_project(tmp_path)
    (copy / "group_data/profiles/dies.yaml").write_text(DIES)
    (copy / "group_data/profiles/other.yaml").write_text(OTHER)
    return copy


def job_events(host: Host) -> list[dict[str, object]]:
    lines = host.shell("cat $(ls -td /run/sglang/jobs/activation/*/ | head -1)events.jsonl").stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_a_first_server_that_dies_is_reported_at_once_and_the_host_is_left_stopped(bare: Host, project: Path) -> None:
    run = deploy(bare, "--data", "profile=dies", project=project)
    assert run.code != 0
    assert run.lines_with("failed step: sglang-server: started and healthy"), run.text
    assert "torch.OutOfMemoryError: CUDA out of memory" in run.lines_with("failed step")[0]
    assert len(run.lines_with("  | ")) == 20, "the last 20 journal lines of this start are shown"
    assert run.lines_with("stopped and not serving (code 4)"), run.text
    assert unit(bare, "ActiveState") == ["inactive"]
    again = deploy(bare)
    assert (again.code, ask(bare)) == (0, "4"), again.text


def test_a_main_process_that_ends_while_starting_is_noticed_within_two_seconds(host: Host, project: Path) -> None:
    """Killed from outside, so that no log line could give it away before."""
    starting = "until systemctl is-active -q sglang-server; do sleep 0.1; done; sleep 3"
    victim = "date +%s.%N >/root/killed-at; kill -KILL $(systemctl show --value --property=MainPID sglang-server)"
    waits_for_new_release = (
        'until grep -q \'"stage": "start"\' /run/sglang/jobs/activation/*/events.jsonl; do sleep 0.1; done'
    )
    script = f"rm -f /run/sglang/jobs/activation/*/events.jsonl; {waits_for_new_release}; {starting}; {victim}"
    host.run(["systemd-run", "--unit=killer", "--collect", "sh", "-c", script])
    run = deploy(host, "--data", "profile=other", project=project)
    assert run.lines_with("rolled back (code 3)"), run.text
    assert run.lines_with("ended while starting (killed by signal 9)"), run.text
    told = next(event["t"] for event in job_events(host) if event["stage"] == "failed")
    assert isinstance(told, float)
    assert 0 <= told - float(host.read_file("/root/killed-at")) < 2.0
    assert ask(host) == "4"


def test_a_new_release_that_dies_leaves_the_host_with_the_one_that_served(host: Host, project: Path) -> None:
    before = host.run(["readlink", "/var/lib/sglang/active"]).stdout
    run = deploy(host, "--data", "profile=dies", project=project)
    assert run.code != 0
    assert run.lines_with("rolled back (code 3)"), run.text
    assert host.run(["readlink", "/var/lib/sglang/active"]).stdout == before
    assert ask(host) == "4"
    after = deploy(host)
    assert (after.code, after.changed) == (0, 0), after.text


def test_a_running_server_that_cannot_be_proven_again_is_not_stopped_for_it(host: Host, project: Path) -> None:
    """The gate is what is wrong here: it expects another answer than the right one."""
    profile = project / "group_data/profiles/sandbox.yaml"
    profile.write_text(profile.read_text().replace('answer: "4"', 'answer: "5"'))
    pid = main_pid(host)
    host.run(["rm", "/var/lib/sglang/last-good"])
    run = deploy(host, project=project)
    assert run.code != 0
    assert run.lines_with("serving but not accepted (code 6)"), run.text
    assert (main_pid(host), ask(host)) == (pid, "4")
    again = deploy(host)
    assert (again.code, main_pid(host)) == (0, pid), again.text


def test_an_argument_that_only_the_engine_refuses_takes_nothing_down(host: Host, project: Path) -> None:
    """The controller's contract is made to lie: the installed parser still refuses before the server is stopped."""
    contract = project / "group_data/engines/contracts/sglang-0.5.23.json"
    contract.write_text(contract.read_text().replace('"--max-running-requests"', '"--max-running-requestz"'))
    pid = main_pid(host)
    (project / "group_data/profiles/sandbox.yaml").write_text(
        (project / "group_data/profiles/sandbox.yaml")
        .read_text()
        .replace("max_running_requests", "max_running_requestz")
    )
    run = deploy(host, project=project)
    assert run.code != 0
    assert run.lines_with("the engine refuses its arguments"), run.text
    assert (main_pid(host), ask(host)) == (pid, "4")


def test_a_host_that_loses_power_serves_again_after_boot(sandbox: Sandbox, host: Host) -> None:
    sandbox.powercut(host.name)
    sandbox.up(host.name, keep=True)
    healthy = "until curl -sf -m 5 http://127.0.0.1:30000/health; do sleep 0.5; done"
    host.shell(f"timeout 120 sh -c {json.dumps(healthy)}", check=True)
    assert ask(host) == "4"
    run = deploy(host)
    assert (run.code, run.changed) == (0, 0), run.text
