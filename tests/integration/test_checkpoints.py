"""The command that shows the checkpoints on a host, and removes those that nobody needs, when it is asked to."""

from collections.abc import Iterator

import pytest

from sandbox.machine import Host
from tests.playbook import TINY, main_pid, pyinfra

pytestmark = pytest.mark.host

OLD = "0123456".ljust(40, "d")  # a commit of digits that no file has
REPOSITORY = TINY.rpartition("/")[0]


@pytest.fixture
def old(host: Host) -> Iterator[str]:
    """An older revision beside the one that serves: the same files, one of them adopted, and a bad file set aside."""
    folder = f"{REPOSITORY}/{OLD}"
    for line in (
        f"cp -r {TINY} {folder}; rm {folder}/model.safetensors",
        f"cp {TINY}/model.safetensors /srv/operators; ln /srv/operators {folder}/model.safetensors",
        f"head -c 20000000 /dev/urandom >{folder}/only-here",
        f"mkdir {folder}.aside; cp {TINY}/config.json {folder}.aside/config.json.2026-11-30_10-00-00",
    ):
        host.run(["sh", "-c", line])
    yield folder
    host.run(["rm", "-rf", folder, f"{folder}.aside", "/srv/operators"])


def listed(host: Host) -> dict[str, str]:
    lines = host.run(["sglang-box", "checkpoints"]).stdout.splitlines()
    return {line.split()[0]: line for line in lines if line.startswith("sandbox/tiny@")}


def test_what_is_there_and_who_needs_it(host: Host, old: str) -> None:
    rows = listed(host)
    active = host.run(["readlink", "/var/lib/sglang/active"]).stdout.strip().rpartition("/")[2]
    assert f"release {active}" in rows[f"sandbox/tiny@{TINY.rpartition('/')[2]}"]
    assert "  checked  " in rows[f"sandbox/tiny@{TINY.rpartition('/')[2]}"]
    assert rows[f"sandbox/tiny@{OLD}"].endswith("not checked           nobody")
    assert "bad files, set aside  nobody" in rows[f"sandbox/tiny@{OLD}.aside"]


def test_what_a_release_needs_stays(host: Host, old: str) -> None:
    pid, revision = main_pid(host), TINY.rpartition("/")[2]
    done = host.run(["sglang-box", "checkpoints", "--remove", f"sandbox/tiny@{revision[:7]}"], check=False)
    assert done.returncode == 2
    assert f"nothing was removed: sandbox/tiny@{revision} is needed by release" in done.stdout
    # All or none: with it the old one stays, too.
    both = ["--remove", f"sandbox/tiny@{OLD}", "--remove", f"sandbox/tiny@{revision}"]
    assert host.run(["sglang-box", "checkpoints", *both], check=False).returncode == 2
    assert set(host.run(["ls", TINY]).stdout.split()) < set(host.run(["ls", old]).stdout.split())
    assert main_pid(host) == pid


def test_what_a_server_started_by_hand_needs_stays(host: Host, old: str) -> None:
    script = f"nohup python3 -c 'import time; time.sleep(99)' --model-path {old} >/dev/null 2>&1 & echo $!"
    pid = host.run(["sh", "-c", script]).stdout.strip()
    try:
        done = host.run(["sglang-box", "checkpoints", "--remove", f"sandbox/tiny@{OLD}"], check=False)
        assert done.returncode == 2
        assert f"is needed by pid {pid} of root" in done.stdout
    finally:
        host.run(["kill", pid])


@pytest.mark.parametrize("name", ["sandbox/tiny@1234567", "sandbox/tiny@", "sandbox/tiny", "../etc@0000000"])
def test_what_is_not_there_is_said(host: Host, name: str) -> None:
    done = host.run(["sglang-box", "checkpoints", "--remove", name], check=False)
    assert done.returncode == 2
    assert f"{name} is not here" in done.stdout


def test_from_the_controller_it_goes_and_what_it_freed_is_said(host: Host, old: str) -> None:
    names = f"sandbox/tiny@{OLD},sandbox/tiny@{OLD[:7]}.aside"
    run = pyinfra("commands/checkpoints.py", "-y", "--limit", host.name, "--data", f"remove={names}")
    assert run.code == 0, run.text
    assert f"freed 0.020 GB: sandbox/tiny@{OLD}, sandbox/tiny@{OLD}.aside" in run.text
    assert "GB are linked from elsewhere and stay" in run.text
    assert host.run(["ls", REPOSITORY]).stdout.split() == [TINY.rpartition("/")[2]]
    # The operator's own file, which was adopted, is as it was.
    assert host.run(["cmp", "/srv/operators", f"{TINY}/model.safetensors"]).returncode == 0
