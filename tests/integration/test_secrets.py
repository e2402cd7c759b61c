"""An API key is planted, and looked for everywhere: it is in one file of root's and in the engine's memory."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.playbook import Run, deploy, main_pid

pytestmark = pytest.mark.host

KEY = "planted-0123456789abcdef-key"
_CONTENT = f'api-key: "{KEY}"\n'
FILE = f"/etc/sglang/credentials/{hashlib.sha256(_CONTENT.encode()).hexdigest()[:16]}.yaml"
# The pattern comes from a file, or the watch would see itself.
WATCH = (
    "while :; do cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' "
    "| grep -qFf /root/pattern && date >>/root/seen; sleep 0.05; done"
)


@pytest.fixture(scope="module")
def keyed(
    sandbox: Sandbox, served: tuple[Host, Run], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Host, Run, Path]]:
    """A host deployed with a key, while every process of it was watched; with the project that holds the key."""
    assert served[1].code == 0, served[1].text
    project = playbook.copy_of_project(tmp_path_factory.mktemp("keyed"))
    with open(os.open(project / "api-key", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(KEY + "\n")
    sandbox.down("keyed")
    [host] = sandbox.up("keyed")
    host.write_file("/root/pattern", KEY, mode="600")
    host.run(["systemd-run", "--unit=watch", "sh", "-c", WATCH])
    run = deploy(host, "--data", "api_key_file=api-key", "--diff", "-vv", project=project)
    host.run(["systemctl", "stop", "watch"])
    yield host, run, project
    sandbox.down(host.name)


def status_of(host: Host, *header: str) -> str:
    url = f"{playbook.ENTRY}/v1/models"
    return host.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *header, url]).stdout


def test_the_server_asks_for_the_key_and_the_run_had_it(keyed: tuple[Host, Run, Path]) -> None:
    host, run, _ = keyed
    assert run.code == 0, run.text
    assert status_of(host) == "401"
    assert status_of(host, "-H", f"Authorization: Bearer {KEY}") == "200"


def test_the_key_was_in_no_command_line_and_no_environment(keyed: tuple[Host, Run, Path]) -> None:
    host = keyed[0]
    assert host.shell("cat /root/seen").stdout == ""
    assert KEY not in host.shell("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'").stdout


def test_the_watch_sees_what_it_looks_for(keyed: tuple[Host, Run, Path]) -> None:
    """A test that could not fail would prove nothing: a process that has the key in its arguments is noticed."""
    host = keyed[0]
    host.run(["systemd-run", "--unit=watch", "sh", "-c", WATCH])
    host.run(["sh", "-c", f"sleep 1; : {KEY}"])
    host.run(["systemctl", "stop", "watch"])
    assert host.shell("cat /root/seen; rm /root/seen").stdout != ""


def test_the_key_is_in_no_output_of_the_run(keyed: tuple[Host, Run, Path]) -> None:
    assert KEY not in keyed[1].text
    assert KEY not in str(keyed[1].report)


def test_the_key_is_in_no_listing_of_the_operations(keyed: tuple[Host, Run, Path]) -> None:
    host, _, project = keyed
    host.run(["rm", FILE])
    words = ("deploy.py", "--debug-operations", "--limit", host.name, "--data", "api_key_file=api-key")
    listing = playbook.pyinfra(*words, project=project)
    assert f"Put {FILE}" in listing.text
    assert KEY not in listing.text
    assert deploy(host, "--data", "api_key_file=api-key", project=project).code == 0


def test_the_key_lies_in_one_file_of_roots(keyed: tuple[Host, Run, Path]) -> None:
    host = keyed[0]
    folders = (
        "/etc /opt/sglang/hostkit /var/lib/sglang /var/log /run/sglang /tmp /var/tmp /root /home /var/cache/sglang"
    )
    host.run(["rm", "/root/pattern"])
    found = host.shell(f"grep -rlF {KEY} {folders} 2>/dev/null").stdout.split()
    assert found == [FILE]
    assert host.run(["stat", "-c", "%a %U", found[0]]).stdout.split() == ["600", "root"]
    assert host.run(["stat", "-c", "%a %U", "/etc/sglang/credentials"]).stdout.split() == ["700", "root"]


def test_the_key_is_in_no_journal(keyed: tuple[Host, Run, Path]) -> None:
    host = keyed[0]
    readers = "journalctl --no-pager -o export; journalctl --namespace=sglang --no-pager -o export"
    text = host.run(["sh", "-c", f"{{ {readers}; }} | LC_ALL=C tr -cd '[:print:]\\n'"]).stdout
    assert "Application startup complete" in text
    assert KEY not in text


def test_a_second_run_changes_nothing_and_asks_with_the_key(keyed: tuple[Host, Run, Path]) -> None:
    host, _, project = keyed
    pid = main_pid(host)
    run = deploy(host, "--data", "api_key_file=api-key", project=project)
    assert (run.code, run.changed, main_pid(host)) == (0, 0, pid), run.text


@pytest.mark.parametrize(
    ("does", "named"),
    [
        ("sed -i s/planted/another/ {file}", "another content"),
        ("chmod 644 {file}", "mode 644, owner root"),
        ("chown admin {file}", "mode 600, owner admin"),
        ("rm {file}", "missing"),
    ],
)
def test_a_credential_that_drifted_is_put_right_without_a_restart(
    keyed: tuple[Host, Run, Path], does: str, named: str
) -> None:
    host, _, project = keyed
    pid = main_pid(host)
    host.shell(does.format(file=FILE), check=True)
    [step] = playbook.would_change(host, "--data", "api_key_file=api-key", project=project)
    assert named in step
    run = deploy(host, "--data", "api_key_file=api-key", project=project)
    assert (run.code, run.changed, main_pid(host)) == (0, 1, pid), run.text


def test_a_key_that_others_can_read_is_refused(keyed: tuple[Host, Run, Path], tmp_path: Path) -> None:
    host, _, project = keyed
    subprocess.run(["install", "-m", "644", project / "api-key", project / "open-key"], check=True)
    run = deploy(host, "--data", "api_key_file=open-key", project=project)
    assert run.code != 0
    assert run.lines_with("can be read by others (chmod 600)"), run.text
