"""A sandbox host is a real systemd machine with eight stand-in GPUs, and it leaves nothing behind.

Everything is looked at with commands that know nothing of the sandbox's code: `ip`, the mount table, /proc,
and what systemd inside the host says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox import Host, Sandbox, furnish, hub
from sandbox.cgroups import hierarchy
from sandbox.commands import missing
from sandbox.gpu.claim import claim
from sandbox.gpu.holders import Holder

PROJECT = Path(__file__).parents[2]
STAMP = "/opt/sglang/engines/abc/stamp"
CLAIM = "/opt/sandbox/gpu/claim.py"

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0, reason="sandbox hosts need root"),
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}"),
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox of this file's own, beside whatever else runs on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(f"/var/tmp/sglang-sandbox-test-{os.getpid()}")
        patch.setenv("SANDBOX_DIR", str(folder))
        patch.delenv("SANDBOX_LAYERS", raising=False)
        own = Sandbox(say=lambda line: print(line, file=sys.stderr))
        try:
            yield own
        finally:
            own.down()
            subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)


@pytest.fixture(scope="module")
def box(sandbox: Sandbox) -> Host:
    """A running host; tests that change its power state leave it running."""
    (host,) = sandbox.up("box")
    return host


@pytest.fixture(scope="module")
def pair(sandbox: Sandbox, box: Host, tmp_path_factory: pytest.TempPathFactory) -> tuple[Host, Host]:
    """Two hosts booted fresh after an engine was kept from the first one, with a folder bound into both."""
    box.write_file(STAMP, "from box", owner="admin")
    assert sandbox.keep("box", "/opt/sglang/engines").paths == ("/opt/sglang/engines/abc",)
    folder = tmp_path_factory.mktemp("outer")
    (folder / "file").write_text("outer")
    second, third = sandbox.up("second", "third", binds={str(folder): "/mnt/outer"})
    return second, third


def eventually(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    """Wait for a condition; False when it does not come true within the limit (s)."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def smi(host: Host, *arguments: str) -> list[str]:
    """Lines that nvidia-smi prints on the host."""
    return host.run(["nvidia-smi", *arguments]).stdout.splitlines()


def used_mib(host: Host) -> list[int]:
    """Memory in use (MiB) on each card, in nvidia-smi's order."""
    return [int(line) for line in smi(host, "--query-gpu=memory.used", "--format=csv,noheader,nounits")]


def hold(host: Host, unit: str, *, gpus: str, mib: int) -> str:
    """Start a process that holds memory, wait until nvidia-smi shows it, and return its id."""
    start = f"systemd-run --quiet --unit={unit} python3 {CLAIM} --gpus {gpus} --mib {mib}"
    shown = "nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep ."
    return host.shell(f"{start} && until {shown}; do sleep 0.05; done", check=True).stdout.split()[0]


def traces(sandbox: Sandbox) -> list[str]:
    """Devices, namespaces, mounts, rules, cgroups and processes of this sandbox on the outer machine."""
    commands = (
        ["ip", "-o", "link"],
        ["ip", "netns"],
        ["nft", "list", "tables"],
        ["cat", "/proc/self/mountinfo"],
    )
    lines = [line for argv in commands for line in _output(argv)]
    lines += [str(path) for path in hierarchy().rglob("*") if path.is_dir()]
    lines += [path.read_bytes().replace(b"\0", b" ").decode() for path in _command_lines()]
    return [line for line in lines if sandbox.place.tag in line or str(sandbox.place.root) in line]


def _output(argv: list[str]) -> list[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def _command_lines() -> list[Path]:
    # A shell that started this test may well name the folder; only the sandbox's own programs count.
    own = (b"supervisor.py", b"systemd-nspawn", b"sandbox.model_hub")
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path] if any(name in path.read_bytes() for name in own) else []
        except OSError:
            continue
    return found


def test_systemd_is_the_first_process_and_reaches_running(box: Host) -> None:
    assert box.read_file("/proc/1/comm").strip() == "systemd"
    assert box.run(["systemctl", "is-system-running", "--wait"]).stdout.strip() == "running"


def test_a_host_is_reached_at_its_own_address_on_the_bridge(box: Host) -> None:
    assert box.run(["printenv", "SSH_CONNECTION"]).stdout.split()[2] == box.address


def test_admin_logs_in_and_becomes_root_without_a_password(box: Host) -> None:
    assert box.run(["whoami"], user="admin").stdout == "admin\n"
    assert box.run(["sudo", "-n", "whoami"], user="admin").stdout == "root\n"


def test_arguments_arrive_as_they_were_given(box: Host) -> None:
    assert box.run(["printf", "%s|", "two words", "$HOME", "it's", ""]).stdout == "two words|$HOME|it's||"


def test_the_package_mirror_is_reached_from_inside(box: Host) -> None:
    mirror = box.read_file("/etc/apt/sources.list").split()[1]
    release = box.run(["curl", "--fail", "--silent", f"{mirror}/dists/bookworm/InRelease"], limit_s=60)
    assert "Codename: bookworm" in release.stdout


def test_eight_cards_in_two_groups_are_listed_in_pci_order(box: Host) -> None:
    buses = smi(box, "--query-gpu=index,pci.bus_id", "--format=csv,noheader")
    assert len(buses) == 8
    assert buses == sorted(buses)
    assert [line.split("\t")[-3] for line in smi(box, "topo", "-m") if line.startswith("GPU")] == list("00001111")


def test_device_minors_do_not_follow_pci_order(box: Host) -> None:
    lines = box.shell("grep -h Minor /proc/driver/nvidia/gpus/*/information", check=True).stdout.splitlines()
    minors = [int(line.split()[-1]) for line in lines]
    assert sorted(minors) == list(range(8))
    assert minors != sorted(minors)


def test_a_claim_shows_its_process_and_vanishes_with_it(box: Host) -> None:
    pid = hold(box, "holder", gpus="1,6", mib=60000)
    assert used_mib(box) == [0, 60010, 0, 0, 0, 0, 60010, 0]
    apps = smi(box, "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
    assert apps == [f"{pid}, 60000 MiB"] * 2
    box.shell(f"systemctl kill -s KILL holder; while test -d /proc/{pid}; do sleep 0.05; done", check=True)
    assert used_mib(box) == [0] * 8


def test_a_claim_on_all_cards_fits_into_a_socket_name() -> None:
    buses = [f"00000000:{bus:02X}:00.0" for bus in range(0x11, 0x91, 0x10)]
    with claim(buses, 97887) as holder:
        name = holder.getsockname().decode().removeprefix("\0")
    assert Holder.parse(name).buses == tuple(bus.lower().removeprefix("00000000:") for bus in buses)


def test_faults_of_cards_and_driver_can_be_set(box: Host) -> None:
    try:
        box.set_gpus(missing=["61:00.0"], used_mib={"0": 512}, driver_version="570.1")
        assert used_mib(box) == [512, 0, 0, 0, 0, 0, 0]
        assert box.shell("ls /proc/driver/nvidia/gpus | wc -l").stdout.strip() == "7"
        assert " 570.1 " in box.read_file("/proc/driver/nvidia/version")
        box.set_gpus(failure="no driver today")
        failed = box.run(["nvidia-smi", "-L"], check=False)
        assert (failed.returncode, failed.stdout) == (9, "no driver today\n")
        with pytest.raises(TypeError, match="misspelt"):
            box.set_gpus(misspelt=1)
    finally:
        box.set_gpus(missing=[], used_mib={}, driver_version="580.126.09", failure=None)


def test_memory_can_be_released_late(box: Host) -> None:
    box.set_gpus(release_s=600)
    try:
        hold(box, "slow", gpus="2", mib=1000)
        box.run(["systemctl", "stop", "slow"])
        assert used_mib(box)[2] == 1010
        assert smi(box, "--query-compute-apps=pid", "--format=csv,noheader") == []
    finally:
        box.set_gpus(release_s=0)
    assert used_mib(box)[2] == 0


def test_an_unknown_field_is_refused_as_the_real_tool_does(box: Host) -> None:
    refused = box.run(["nvidia-smi", "--query-gpu=colour", "--format=csv"], check=False)
    assert refused.returncode == 2
    assert refused.stdout.startswith('Field "colour" is not a valid field to query.')


def test_device_allow_decides_which_card_a_unit_may_open(box: Host) -> None:
    policy = ["-p", "DevicePolicy=closed", "-p", "DeviceAllow=/dev/nvidia3 rw"]
    attempt = "try: os.open(f'/dev/nvidia{minor}', os.O_RDWR)\n except OSError as error: print(error.errno)"
    probe = f"import os\nfor minor in 3, 4:\n {attempt}"
    opened = box.run(["systemd-run", "--quiet", "--pipe", "--wait", *policy, "python3", "-c", probe])
    assert [os.strerror(int(line)) for line in opened.stdout.split()] == [
        "No such device or address",  # let through; there is no driver behind the node
        "Operation not permitted",
    ]


def test_a_reboot_changes_the_boot_id_and_keeps_files(sandbox: Sandbox, box: Host) -> None:
    before = box.read_file("/proc/sys/kernel/random/boot_id")
    box.write_file("/var/lib/kept/by-reboot", "here")
    sandbox.reboot("box")
    assert box.read_file("/proc/sys/kernel/random/boot_id") != before
    assert box.read_file("/var/lib/kept/by-reboot") == "here"


def test_a_power_cut_ends_everything_and_keeps_files(sandbox: Sandbox, box: Host) -> None:
    box.write_file("/var/lib/kept/by-cut", "here")
    sandbox.powercut("box")
    assert traces(sandbox) == []
    sandbox.up("box", keep=True)
    assert box.read_file("/var/lib/kept/by-cut") == "here"


def test_up_leaves_a_running_host_alone(sandbox: Sandbox, box: Host) -> None:
    before = box.read_file("/proc/sys/kernel/random/boot_id")
    sandbox.up("box")
    assert box.read_file("/proc/sys/kernel/random/boot_id") == before


def test_a_process_id_of_a_stranger_is_never_signalled(sandbox: Sandbox) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        ghost = sandbox.host("ghost")
        ghost.folder.mkdir(parents=True)
        (ghost.folder / "pid").write_text(str(stranger.pid))
        assert not ghost.running
        sandbox.down("ghost")
        assert stranger.poll() is None
        stranger.kill()


def test_a_dead_supervisor_s_machine_is_cleared_by_the_next_up(sandbox: Sandbox, box: Host) -> None:
    assert box.process
    os.kill(box.process.pid, 9)
    assert eventually(lambda: not box.running)
    sandbox.up("box", keep=True)
    assert box.run(["true"]).returncode == 0


def test_hosts_reach_the_model_hub_and_the_next_up_starts_one_that_died(sandbox: Sandbox, box: Host) -> None:
    url = hub.running(sandbox.place).endpoint
    about = json.loads(box.run(["curl", "-sS", f"{url}/api/models/sandbox/tiny"]).stdout)
    assert about["sha"] == furnish.TINY
    os.kill(json.loads((hub.folder(sandbox.place) / "running.json").read_text())["pid"], 9)
    assert eventually(lambda: hub.endpoint(sandbox.place) is None)
    sandbox.up("box")
    url = hub.running(sandbox.place).endpoint
    assert box.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url]).stdout == "404"


def test_a_kept_layer_is_on_every_fresh_host_and_cannot_be_written_through(pair: tuple[Host, Host]) -> None:
    second, third = pair
    assert second.run(["stat", "-c", "%U", STAMP]).stdout == "admin\n"
    second.write_file(STAMP, "changed")
    assert second.read_file(STAMP) == "changed"
    assert third.read_file(STAMP) == "from box"


def test_what_is_kept_already_is_not_kept_again(sandbox: Sandbox, pair: tuple[Host, Host]) -> None:
    assert sandbox.keep(pair[0].name, "/opt/sglang/engines").paths == ()


def test_a_folder_can_be_bound_read_only(pair: tuple[Host, Host]) -> None:
    assert pair[0].read_file("/mnt/outer/file") == "outer"
    assert pair[0].shell("touch /mnt/outer/new").returncode != 0


def test_a_reset_drops_what_the_host_wrote(sandbox: Sandbox, box: Host) -> None:
    box.write_file("/var/lib/dropped", "here")
    sandbox.reset("box")
    assert box.run(["test", "-e", "/var/lib/dropped"], check=False).returncode == 1


def test_down_leaves_nothing_and_may_be_repeated(sandbox: Sandbox, box: Host) -> None:
    assert traces(sandbox) != []
    command = [sys.executable, "-m", "sandbox", "down"]
    for _ in range(2):
        subprocess.run(command, cwd=PROJECT, stdin=subprocess.DEVNULL, check=True)
    assert traces(sandbox) == []
    assert not box.running
