"""Drift of what the server runs from: it starts anew, once, and nothing else does."""

import pytest

from sandbox.machine import Host
from tests.drifts import ENGINE, FROM_SOMETHING_ELSE
from tests.playbook import ask, deploy, main_pid, unit, would_change

pytestmark = pytest.mark.host


@pytest.mark.parametrize("name", FROM_SOMETHING_ELSE)
def test_starts_anew(host: Host, name: str) -> None:
    drift = FROM_SOMETHING_ELSE[name]
    host.shell(drift.does, check=True)
    assert any(drift.named in step for step in would_change(host))
    run = deploy(host)
    assert (run.code, run.failed) == (0, 0), run.text
    assert would_change(host) == []
    assert ask(host) == "4"
    assert unit(host, "NRestarts") == ["0"]


ENGINE_DAMAGE = {
    "a package changed": "rm -r {e}/lib/python3.*/site-packages/idna-*.dist-info",
    "a file deleted": "rm {e}/lib/python3.*/site-packages/idna/core.py",
    "a file added": "touch {e}/lib/python3.11/site-packages/added.py",
}


@pytest.mark.parametrize("name", ENGINE_DAMAGE)
def test_a_damaged_engine_is_replaced_as_a_whole_beside_the_running_server(host: Host, name: str) -> None:
    pid = main_pid(host)
    engine = host.shell(f"readlink -f {ENGINE}").stdout.strip()
    before = host.run(["stat", "-c", "%i", engine]).stdout
    host.shell(ENGINE_DAMAGE[name].format(e=engine), check=True)
    [named] = would_change(host)
    assert "changed since its installation" in named
    run = deploy(host)
    assert (run.code, run.changed) == (0, 1), run.text
    assert host.run(["stat", "-c", "%i", engine]).stdout != before, "a new folder, and no write into the old one"
    assert (main_pid(host), ask(host)) == (pid, "4")
    assert would_change(host) == []


def test_an_engine_folder_that_is_half_there_is_made_anew(host: Host) -> None:
    engine = host.shell(f"readlink -f {ENGINE}").stdout.strip()
    pid = main_pid(host)
    host.shell(f"rm {engine}/engine.json; mkdir -p {engine}.partial/lib", check=True)
    [named] = would_change(host)
    assert "Install sandbox-light (not installed)" in named
    run = deploy(host)
    assert (run.code, run.changed) == (0, 1), run.text
    assert (main_pid(host), ask(host)) == (pid, "4")
    assert host.shell(f"ls -d {engine}.partial").returncode != 0


def test_a_removed_service_user_is_added_again(host: Host) -> None:
    host.shell("systemctl stop sglang-server; userdel sglang", check=True)
    assert "Add the service user sglang" in would_change(host)[0]
    run = deploy(host)
    assert (run.code, ask(host)) == (0, "4"), run.text
    assert would_change(host) == []


def test_a_port_taken_while_the_server_is_down_is_refused_with_its_holder(host: Host) -> None:
    host.run(["systemctl", "stop", "sglang-server"])
    host.run(["systemd-run", "--unit=stranger", "python3", "-m", "http.server", "--bind", "127.0.0.1", "30000"])
    host.shell("until ss -Hltn sport = :30000 | grep -q .; do sleep 0.05; done", check=True)
    try:
        run = deploy(host)
        assert run.code != 0
        assert run.lines_with("port 30000: is in use on 127.0.0.1 by pid"), run.text
    finally:
        host.run(["systemctl", "stop", "stranger"])
    assert deploy(host).code == 0
    assert ask(host) == "4"
