"""From a bare systemd host to a right answer, with the real engine; looked at by commands that are not ours."""

import json
from pathlib import Path

import pytest

from sandbox.machine import Host
from tests import playbook
from tests.playbook import TINY, Run, ask, deploy, main_pid, unit

pytestmark = pytest.mark.host


def test_a_bare_host_ends_up_serving(served: tuple[Host, Run]) -> None:
    host, run = served
    assert run.code == 0, run.text
    assert ask(host) == "4"
    assert unit(host, "ActiveState", "NRestarts", "User") == ["active", "0", "sglang"]


def test_the_run_shows_its_steps_the_wait_and_how_to_use_the_server(served: tuple[Host, Run]) -> None:
    text = served[1].text
    for part in (
        "s  start: ",
        "known answer",
        "ssh -L 30000:127.0.0.1:30000",
        "curl -s 127.0.0.1:30000",
        "journalctl",
    ):
        assert part in text, part


def test_the_server_copies_an_identifier_back(host: Host) -> None:
    assert ask(host, "Repeat exactly: 9f-a2b7c") == "9f-a2b7c"


def test_it_listens_on_loopback_only(host: Host) -> None:
    listening = host.run(["ss", "-Hltn", "sport = :30000"]).stdout.split()
    assert listening[3] == "127.0.0.1:30000"


def test_its_processes_hold_the_gpu_that_the_plan_gave_them(host: Host) -> None:
    rows = host.run(["nvidia-smi", "--query-compute-apps=pid,process_name,gpu_bus_id", "--format=csv,noheader"]).stdout
    [row] = rows.strip().splitlines()
    pid, name, bus = row.split(", ")
    assert name == "sglang::scheduler"
    assert "sglang-server.service" in host.read_file(f"/proc/{pid}/cgroup")
    assert bus == host.run(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"]).stdout.split()[0]


def test_nccl_settings_are_in_the_process_bare(host: Host) -> None:
    environment = host.read_file(f"/proc/{main_pid(host)}/environ").split("\0")
    assert {"NCCL_PROTO=LL", "NCCL_ALGO=Ring", "NCCL_BUFFSIZE=16777216"} <= set(environment)


def test_systemd_finds_no_fault_in_the_units(host: Host) -> None:
    done = host.run(["systemd-analyze", "verify", "/etc/systemd/system/sglang-server.service"], check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_hardened(host: Host) -> None:
    """2.0 or less of 10 by systemd's own measure."""
    last = (
        host.run(["systemd-analyze", "security", "--no-pager", "sglang-server.service"]).stdout.strip().splitlines()[-1]
    )
    assert float(last.split(": ")[1].split()[0]) <= 2.0


def test_the_unit_reaches_its_own_gpu_and_no_other(host: Host) -> None:
    """Seen from inside of the unit's control group: the stand-in's nodes have no driver, so ENXIO means allowed."""
    minors = host.run(["nvidia-smi", "-q"]).stdout
    own = int(next(line for line in minors.splitlines() if "Minor Number" in line).split(":")[1])
    group = "/sys/fs/cgroup" + unit(host, "ControlGroup")[0]

    def opened(minor: int) -> str:
        script = f"echo $$ >{group}/cgroup.procs; exec head -c1 /dev/nvidia{minor}"
        return host.run(["env", "LC_ALL=C", "sh", "-c", script], check=False).stderr

    assert "No such device or address" in opened(own)
    others = [opened(minor) for minor in range(8) if minor != own]
    assert all("Operation not permitted" in text for text in others), others


def test_a_second_run_changes_nothing_and_asks_its_question(host: Host) -> None:
    pid, started = main_pid(host), unit(host, "InvocationID")
    run = deploy(host)
    assert (run.code, run.changed, run.failed) == (0, 0, 0), run.text
    assert (main_pid(host), unit(host, "InvocationID")) == (pid, started)
    assert run.lines_with("answered: What is 2+2?") or run.lines_with("-> 4")


def test_a_dry_run_of_a_served_host_has_nothing_to_do(host: Host) -> None:
    run = playbook.pyinfra("deploy.py", "--dry", "--json", "--limit", host.name)
    assert [operation["name"] for operation in run.report["plan"] if operation["hosts_with_change"]] == []


def test_status_shows_the_unit_and_its_release(host: Host) -> None:
    run = playbook.pyinfra("commands/status.py", "--limit", host.name, "-y")
    assert run.code == 0
    release = host.run(["readlink", "/var/lib/sglang/active"]).stdout.strip().rpartition("/")[2]
    assert run.lines_with("sglang-server.service")
    assert run.lines_with(release)


def test_the_console_command_says_the_same(host: Host) -> None:
    assert "active/running" in host.run(["sglang-box", "status"]).stdout
    assert json.loads(host.run(["sglang-box", "ask"]).stdout)["ok"] is True


def test_the_contract_is_what_the_installed_parser_says(host: Host) -> None:
    """The flags that the controller checks against are those of the engine that serves."""
    python = unit(host, "ExecStart")[0].split("path=")[1].split(" ")[0]
    environment = ["env", "PYTHONPATH=/opt/sandbox/cpu", python]
    dumped = host.run(
        [
            *environment,
            host.run(["readlink", "/usr/local/bin/sglang-box"]).stdout.strip(),
            "engine-parser",
            "dump",
            "sglang",
        ]
    )
    committed = playbook.ROOT / "group_data" / "engines" / "contracts" / "sglang-0.5.23.json"
    assert json.loads(dumped.stdout) == json.loads(committed.read_text())


def refused(host: Host, *words: str, project: Path = playbook.ROOT) -> str:
    """The text of a run that must be refused and must leave the server as it was."""
    pid = main_pid(host)
    run = deploy(host, *words, project=project)
    assert run.code != 0
    assert "nothing was changed" in run.text, run.text
    assert main_pid(host) == pid
    assert ask(host) == "4"
    return run.text


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("profile=sandbx", "group_data/profiles/sandbx.yaml: there is no such file; did you mean sandbox"),
        ("modles=/srv", "group_data: modles: unknown key; did you mean models?"),
        ("port=high", "group_data: port: input should be a valid integer"),
        ("listen=0.0.0.0", "would be open to the network without an API key"),
    ],
)
def test_a_wrong_setting_is_refused(host: Host, setting: str, expected: str) -> None:
    assert expected in refused(host, "--data", setting)


def test_a_run_that_needs_a_restart_is_refused_where_none_is_allowed(host: Host) -> None:
    text = refused(host, "--data", "restart=never", "--data", "port=30001")
    assert 'restart = "never": this run would start or restart sglang-server.service' in text
    run = deploy(host, "--data", "restart=never")
    assert (run.code, run.changed) == (0, 0), "a run that needs none is not refused"


def test_a_dry_run_says_that_tokens_stop_and_for_how_long(host: Host) -> None:
    [stage, _, activate] = playbook.would_change(host, "--data", "port=30001")
    assert "Stage release.json" in stage
    assert "tokens stop: stops sglang-server.service, starts sglang-server.service (about" in activate
    assert "s, as last time)" in activate


def test_an_unknown_argument_in_a_profile_is_refused(host: Host, tmp_path: Path) -> None:
    project = playbook.copy_of_project(tmp_path)
    (project / "group_data/profiles/mine.yaml").write_text("extends: sandbox\narguments: {cuda_graph_max_bs: 32}\n")
    text = refused(host, "--data", "profile=mine", project=project)
    assert "write cuda_graph_max_bs_decode or cuda_graph_max_bs_prefill" in text


def test_a_port_in_use_is_refused_with_its_holder(host: Host) -> None:
    host.run(["systemd-run", "--unit=stranger", "python3", "-m", "http.server", "--bind", "127.0.0.1", "30999"])
    try:
        host.shell("until ss -Hltn sport = :30999 | grep -q .; do sleep 0.05; done", check=True)
        text = refused(host, "--data", "port=30999")
        assert "port 30999: is in use on 127.0.0.1 by pid" in text
        assert "stranger.service): python3 -m http.server" in text or "http.server" in text
    finally:
        host.run(["systemctl", "stop", "stranger"])


def test_a_gpu_held_by_another_process_is_refused_with_its_holder(host: Host) -> None:
    claim = ["python3", "/opt/sandbox/gpu/claim.py", "--gpus", "0", "--mib", "12345"]
    host.run(["systemd-run", "--unit=stranger", *claim])
    try:
        host.shell(
            "until nvidia-smi --query-compute-apps=used_memory --format=csv | grep -q 12345; do sleep 0.05; done"
        )
        text = refused(host)
        assert "12345 MiB held by pid" in text
        assert "systemctl stop stranger.service" in text
    finally:
        host.run(["systemctl", "stop", "stranger"])


def test_a_missing_checkpoint_file_is_to_be_fetched_and_without_a_hub_refused(host: Host) -> None:
    path = f"{TINY}/tokenizer.json"
    host.run(["mv", path, "/root/aside"])
    try:
        [named] = playbook.would_change(host)
        assert "Fetch sandbox/tiny@" in named
        assert " from http://10." in named
        assert f"{path}: is missing" in refused(host, "--data", "hub_mirrors=[]")
    finally:
        host.run(["mv", "/root/aside", path])


def test_a_sandbox_that_does_not_run_is_said_with_the_command_that_starts_it(tmp_path: Path) -> None:
    run = playbook.pyinfra("deploy.py", "-y", SANDBOX_DIR=str(tmp_path))
    assert run.code != 0
    assert len(run.lines_with("start it with: sudo python3 -m sandbox up")) == 1, run.text


def test_an_unreachable_host_is_said_with_the_remedy(tmp_path: Path) -> None:
    project = playbook.copy_of_project(tmp_path)
    inventory = (project / "inventory.py").read_text()
    nobody = "= [('127.0.0.1', {'ssh_user': 'root', 'ssh_port': 9})]"
    (project / "inventory.py").write_text(inventory.replace("= []", nobody))
    run = playbook.pyinfra("deploy.py", "-y", project=project)
    assert run.code != 0
    assert len(run.lines_with("nothing was changed there; make `ssh` to it work")) == 1, run.text


def test_an_administrator_with_sudo_deploys_as_well(host: Host, tmp_path: Path) -> None:
    project = playbook.copy_of_project(tmp_path)
    inventory = (project / "inventory.py").read_text()
    as_admin = "sandbox = [(n, {**d, 'ssh_user': 'admin', '_sudo': True}) for n, d in _sandbox_hosts()]"
    (project / "inventory.py").write_text(inventory.replace("sandbox = _sandbox_hosts()", as_admin))
    run = deploy(host, project=project)
    assert (run.code, run.changed, run.failed) == (0, 0, 0), run.text
