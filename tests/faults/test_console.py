"""What the operator is told and can do at the console, when things are right and when they are not."""

import json
from pathlib import Path

import pytest

from sandbox.machine import Host
from tests.faults import simulated
from tests.faults.simulated import serving

pytestmark = pytest.mark.host


def box(host: Host, *words: str) -> tuple[int, str]:
    done = host.run(["sglang-box", *words], check=False)
    return done.returncode, done.stdout + done.stderr


def test_status_of_a_host_that_serves_names_all_of_it_and_no_problem(old: Host) -> None:
    code, text = box(old, "status")
    assert (code, "PROBLEM" in text) == (0, False), text
    for part in ("of profile old: good since", "sglang-server.service active/running since", "-> 4", "GPU 0"):
        assert part in text


@pytest.mark.parametrize(
    ("does", "undo", "told"),
    [
        (
            "sed -i s/^LimitNOFILE.*// {unit}",
            "sglang-box install {release}",
            "is not as the release has it",
        ),
        ("systemctl stop sglang-server", "systemctl start sglang-server", "no right answer"),
        ("systemctl kill --signal=STOP sglang-server", "systemctl kill --signal=CONT sglang-server", "no right answer"),
        ("echo '{intent}' >/var/lib/sglang/intent.json", "rm /var/lib/sglang/intent.json", "an activation was cut off"),
    ],
)
def test_status_tells_each_problem_in_one_line(old: Host, does: str, undo: str, told: str) -> None:
    release = old.run(["readlink", "/var/lib/sglang/active"]).stdout.strip().rpartition("/")[2]
    intent = {"to": release, "back_to": [], "gates": "quick", "attempt": 1, "since": 0, "boot": "another"}
    places = {"unit": "/etc/systemd/system/sglang-server.service", "release": release, "intent": json.dumps(intent)}
    old.shell(does.format(**places), check=True)
    code, text = box(old, "status")
    old.shell(undo.format(**places), check=True)
    [problem] = [line for line in text.splitlines() if line.startswith("PROBLEM")]
    assert (code, told in problem) == (1, True), text


def test_stop_and_start(old: Host) -> None:
    code, text = box(old, "stop")
    assert (code, "stopped sglang-server.service; 1 GPUs free" in text) == (0, True), text
    assert serving(old) is None
    code, text = box(old, "stop")
    assert (code, "nothing ran" in text) == (0, True), text
    code, text = box(old, "start")
    assert (code, serving(old)) == (0, "old"), text


def test_releases_are_listed_with_verdict_and_speed(old: Host, project: Path) -> None:
    assert simulated.deploy(old, project, "new", "--data", "gates=full").code == 0
    text = box(old, "releases")[1]
    newest = text.splitlines()[1]
    assert "new      good" in newest
    assert "at C=1, " in newest
    assert " * " in newest


def test_a_rollback_to_what_is_not_there_names_what_is(old: Host) -> None:
    code, text = box(old, "rollback", "0123")
    assert (code, "release 0123 is not on this host; there are: " in text) == (2, True), text
    assert serving(old) == "old"


def test_only_a_few_releases_are_kept_and_never_is_one_removed_that_serves(old: Host, project: Path) -> None:
    for number in range(8):
        document: dict[str, object] = {"units": [], "credential": None, "profile": "gone", "files": []}
        old.write_file(f"/var/lib/sglang/releases/{number:016d}/release.json", json.dumps(document))
    old.shell("touch -d '2 days ago' /var/lib/sglang/releases/0*/release.json")
    assert simulated.deploy(old, project).code == 0
    kept = old.shell("ls /var/lib/sglang/releases").stdout.split()
    assert len(kept) == 6, "active and last good are one here, and five more"
    assert old.run(["readlink", "/var/lib/sglang/active"]).stdout.strip().rpartition("/")[2] in kept
    assert box(old, "rollback")[0] == 0
    assert serving(old) == "old"


def test_shared_memory_of_dead_servers_goes_with_the_next_stop(old: Host) -> None:
    old.shell("touch /dev/shm/left /dev/shm/other; chown sglang /dev/shm/left", check=True)
    assert box(old, "stop")[0] == 0
    assert old.shell("ls /dev/shm").stdout.split().count("left") == 0
    assert "other" in old.shell("ls /dev/shm").stdout
    assert box(old, "start")[0] == 0
