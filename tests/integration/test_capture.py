"""Evidence of a server that hangs, on a host with an API key: bounded in time, whole, and without the key."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.playbook import Run, deploy, main_pid

pytestmark = pytest.mark.host

KEY = "planted-0123456789abcdef-key"
SERVER = "sglang-server.service"
CAPTURES = "/var/lib/sglang/captures"
SICK = (
    "import sys; sys.path.insert(0, '/usr/local/bin/sglang-box'); from hostkit import capture, release; "
    "document = release.load(release.active()); print(capture.sick(document['units'][0], document, 3))"
)


@pytest.fixture(scope="module")
def keyed(
    sandbox: Sandbox, served: tuple[Host, Run], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Host, Path]]:
    """A host that serves with a key, and the project that holds it."""
    assert served[1].code == 0, served[1].text
    project = playbook.copy_of_project(tmp_path_factory.mktemp("keyed"))
    with open(os.open(project / "api-key", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(KEY + "\n")
    sandbox.down("captured")
    [host] = sandbox.up("captured")
    run = deploy(host, "--data", "api_key_file=api-key", project=project)
    assert run.code == 0, run.text
    yield host, project
    sandbox.down(host.name)


@pytest.fixture
def host(keyed: tuple[Host, Path]) -> Host:
    return keyed[0]


def capture(host: Host, reason: str = "a test") -> tuple[str, dict[str, Any]]:
    """The folder that `sglang-box capture` prints, and its index."""
    began = time.monotonic()
    [folder] = host.run(["sglang-box", "capture", "--reason", reason]).stdout.split()
    assert time.monotonic() - began < 20
    return folder, json.loads(host.read_file(f"{folder}/index.json"))


def sick(host: Host) -> str:
    return host.run(["python3", "-c", SICK]).stdout.strip()


def holders_of_the_key(host: Host) -> str:
    return host.shell(f"grep -rlF {KEY} {CAPTURES}").stdout


def test_a_server_that_serves_is_not_sick_and_stays_as_it_is(host: Host) -> None:
    pid = main_pid(host)
    assert sick(host) == "None"
    folder, index = capture(host, reason="just looking")
    assert (index["reason"], index["unit"], index["state"]) == ("just looking", SERVER, "active/running")
    assert index["left_out"] == {}
    assert index["release"] == host.run(["readlink", "/var/lib/sglang/active"]).stdout.strip().rpartition("/")[2]
    assert host.run(["stat", "-c", "%a %U", folder, CAPTURES]).stdout.split() == ["700", "root"] * 2
    assert (main_pid(host), sick(host)) == (pid, "None")


def test_each_file_holds_what_its_name_says(host: Host) -> None:
    folder, _ = capture(host)
    pid = main_pid(host)
    for file, part in {
        "journal.txt": "Application startup complete",
        "systemctl-status.txt": "Active: active (running)",
        "systemctl-show.txt": f"MainPID={pid}",
        "nvidia-smi.txt": "Driver Version",
        "gpu-processes.txt": "sglang::scheduler",
        "health.txt": "/health: 200 after ",
        "server_info.json": '"served_model_name": "tiny"',
        "processes.txt": f"== {pid}\n-- status\nName:",
    }.items():
        assert part in host.read_file(f"{folder}/{file}"), file
    processes = host.read_file(f"{folder}/processes.txt")
    group = host.read_file(f"/sys/fs/cgroup/system.slice/{SERVER}/cgroup.procs").split()
    assert {line.removeprefix("== ") for line in processes.splitlines() if line.startswith("== ")} == set(group)
    assert "write_bytes:" in processes
    assert "voluntary_ctxt_switches:" in processes


def test_the_journal_is_that_of_this_invocation_with_what_systemd_says(host: Host) -> None:
    folder, index = capture(host)
    assert index["invocation_id"] == playbook.unit(host, "InvocationID")[0]
    lines = host.read_file(f"{folder}/journal.txt")
    assert lines.count("Started sglang-server.service") == 1
    assert "systemd[1]:" in lines


def test_the_key_is_in_no_file_though_the_server_tells_it(host: Host) -> None:
    header = f"Authorization: Bearer {KEY}"
    info = host.run(["curl", "-s", "-H", header, f"{playbook.ENTRY}/server_info"]).stdout
    assert KEY in info, "the server tells its key: the test could fail"
    folder, _ = capture(host)
    assert '"api_key": "(redacted)"' in host.read_file(f"{folder}/server_info.json")
    assert holders_of_the_key(host) == ""


def test_a_key_changed_since_the_start_is_in_no_file_either(host: Host, keyed: tuple[Host, Path]) -> None:
    """The process knows the old one, the host has the new one."""
    file = host.shell("ls /etc/sglang/credentials/*.yaml").stdout.strip()
    host.run(["sed", "-i", "s/planted/another/", file])
    _, index = capture(host, reason=KEY.replace("planted", "another"))
    assert (index["left_out"], index["reason"], sick(host)) == ({}, "(redacted)", "None")
    assert host.shell(f"grep -rlF -e {KEY} -e {KEY.replace('planted', 'another')} {CAPTURES}").stdout == ""
    host.run(["sed", "-i", "s/another/planted/", file])


def test_a_server_that_hangs_is_sick_and_its_evidence_is_taken_in_time(host: Host) -> None:
    host.run(["systemctl", "kill", "--signal=STOP", SERVER])
    try:
        assert sick(host) == f"{SERVER}: /health gives no answer within 3 s"
        folder, index = capture(host)
        assert "server_info" in index["left_out"]
        assert "/health: no answer after 5." in host.read_file(f"{folder}/health.txt")
        assert "State:\tT (stopped)" in host.read_file(f"{folder}/processes.txt")
        assert "Application startup complete" in host.read_file(f"{folder}/journal.txt")
    finally:
        host.run(["systemctl", "kill", "--signal=CONT", SERVER])
    assert sick(host) == "None"


def test_a_driver_that_hangs_is_left_and_said_so(host: Host) -> None:
    host.set_gpus(delay_s=60)
    try:
        folder, index = capture(host)
    finally:
        host.set_gpus(delay_s=0)
    assert index["left_out"] == {
        "nvidia-smi": "TimeoutError: killed after 11 s",
        "gpu-processes": "TimeoutError: killed after 11 s",
    }
    assert "/health: 200" in host.read_file(f"{folder}/health.txt")


def test_python_stacks_are_taken_where_py_spy_is_installed(host: Host) -> None:
    """The real one, from where the engine's lock has it; the sandbox's engine comes without."""
    host.shell("python3 -m venv /root/tools && /root/tools/bin/pip install -q py-spy==0.4.3", check=True)
    host.run(["ln", "-s", "/root/tools/bin/py-spy", "/usr/local/bin/py-spy"])
    try:
        folder, index = capture(host)
    finally:
        host.run(["rm", "/usr/local/bin/py-spy"])
    assert index["left_out"] == {}
    stacks = host.read_file(f"{folder}/py-spy.txt")
    assert "event_loop" in stacks
    assert "scheduler.py:" in stacks
    assert sick(host) == "None"


def test_the_newest_ten_are_kept(host: Host) -> None:
    host.shell(f"rm -r {CAPTURES}/*; for day in $(seq 11 23); do mkdir {CAPTURES}/2026-01-${{day}}_x; done", check=True)
    folder, _ = capture(host)
    kept = sorted(host.run(["ls", CAPTURES]).stdout.split())
    assert kept == [f"2026-01-{day}_x" for day in range(15, 24)] + [folder.rpartition("/")[2]]


def test_a_server_that_answers_wrong_or_is_down_is_sick(host: Host) -> None:
    gates = "/var/lib/sglang/active/gates.json"
    host.run(["sed", "-i.kept", 's/"answer": "4"/"answer": "5"/', gates])
    assert sick(host).startswith(f"{SERVER}: 'What is 2+2? Answer with the number only.' was answered '4' instead of")
    host.run(["mv", f"{gates}.kept", gates])
    host.run(["systemctl", "stop", SERVER])
    assert sick(host).startswith(f"{SERVER} is inactive/dead, its process ")
    _, index = capture(host)
    assert index["state"] == "inactive/dead"
    assert set(index["left_out"]) == {"server_info"}
    assert holders_of_the_key(host) == ""
