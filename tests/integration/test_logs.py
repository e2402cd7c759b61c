"""The servers' logs: from here for all hosts, and at the console of one."""

import json

import pytest

from sandbox.machine import Host
from tests import playbook
from tests.playbook import Run, ask

pytestmark = pytest.mark.host

FIRED_UP = "The server is fired up and ready to roll"


def logs(host: Host, *words: str) -> Run:
    return playbook.pyinfra("commands/logs.py", "-y", "--limit", host.name, *words)


def shown(host: Host, run: Run) -> list[str]:
    """The lines of the log, without those of pyinfra."""
    assert run.code == 0, run.text
    prefix = f"[{host.name}] "
    return [line.removeprefix(prefix) for line in run.text.splitlines() if line.startswith(prefix)]


def console(host: Host, *words: str) -> list[str]:
    return host.run(["sglang-box", "logs", *words]).stdout.splitlines()


def test_what_the_server_logged_is_shown_with_what_systemd_says(host: Host) -> None:
    lines = shown(host, logs(host, "--data", "lines=5000"))
    assert any(FIRED_UP in line and "sglang-server" in line for line in lines)
    assert any("systemd[1]: Started sglang-server.service" in line for line in lines)
    assert not any("python3 is missing" in line for line in lines)


def test_no_more_lines_than_asked_for_and_the_last_ones(host: Host) -> None:
    whole = console(host, "--lines=5000", "--unit=sglang-server")
    assert console(host, "--lines=3") == whole[-3:]
    assert len(shown(host, logs(host, "--data", "lines=3", "--data", "unit=sglang-server.service"))) == 3


def test_the_start_that_runs_is_shown_and_an_earlier_one_where_a_time_is_given(host: Host) -> None:
    host.run(["systemctl", "restart", "sglang-server"])
    lines = ("--data", "lines=9000")
    now, earlier = (logs(host, *lines), logs(host, *lines, "--data", "since=2 hours ago"))
    healthy = f"until curl -sf -m 5 {playbook.ENTRY}/health; do sleep 0.5; done"
    host.shell(f"timeout 120 sh -c {json.dumps(healthy)}", check=True)
    starts = [sum("Started sglang-server" in line for line in shown(host, run)) for run in (now, earlier)]
    assert starts[0] == 1
    assert starts[1] >= 2
    assert ask(host) == "4"


def test_the_console_follows(host: Host) -> None:
    host.shell("timeout 30 sglang-box logs --follow --lines=1 >/root/followed 2>&1 & echo $! >/root/follower")
    wait = "timeout 20 sh -c 'until grep -q {} /root/followed; do sleep 0.1; done'"
    host.shell(wait.format("sglang-server"), check=True)
    ask(host)
    host.shell(wait.format('"POST /v1/chat/completions"'), check=True)
    host.shell("kill $(cat /root/follower); rm /root/followed /root/follower", check=True)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("line=5", "group_data: line: unknown key; did you mean lines"),
        ("lines=0", "group_data: lines: input should be greater than 0, not 0; correct the value"),
        ("unit=sglang-serve", "logs: no unit of the playbook is called sglang-serve; known: sglang-server.service;"),
        ("since=whenever", "logs: since: 'whenever' is no time; write 'today', '2 hours ago' or '2026-11-30 14:00';"),
    ],
)
def test_a_wrong_option_is_one_clear_line(host: Host, option: str, said: str) -> None:
    run = logs(host, "--data", option)
    assert run.code != 0
    assert len(run.lines_with(said)) == 1, run.text
    assert "Traceback" not in run.text


def test_the_console_refuses_what_is_no_number_of_lines(host: Host) -> None:
    done = host.run(["sglang-box", "logs", "--lines=many"], check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("'many' is no number of lines")


def test_a_host_that_was_never_deployed_says_so(bare: Host) -> None:
    run = logs(bare)
    assert run.code != 0
    assert len(run.lines_with("sglang-box: not found; ")) == 1, run.text
    assert run.lines_with("deploy.py puts it onto a host that has none")
