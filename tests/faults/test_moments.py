"""What happens to a switch that something breaks into, at each of its stages: the way back, and the next run."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox import network
from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.faults import simulated
from tests.faults.simulated import at_stage, begin, code, deploy, fault, serves_within, serving, two_servers
from tests.playbook import would_change

pytestmark = pytest.mark.host

STAGES = ("gates", "stop", "gpus", "start", "ladder")
RECOVERED = "timeout 30 sh -c 'while test -e /var/lib/sglang/intent.json; do sleep 0.2; done'"
CLAIM = "python3 /opt/sandbox/gpu/claim.py --gpus 0 --mib 5000"


@pytest.fixture
def old(either: Host) -> Host:
    return either


def converges(host: Host, project: Path) -> str:
    """The next run ends with the new release serving, the one after that has nothing to do."""
    assert two_servers(host) == ""
    simulated.without_faults(host)
    run = deploy(host, project)
    assert (run.code, serving(host)) == (0, "new"), run.text
    assert would_change(host, "--data", f"profile={simulated.profile('new')}", project=project) == []
    assert two_servers(host) == ""
    assert host.shell("ls /var/lib/sglang/intent.json").returncode != 0
    return f"serves the new one, changed {run.changed}"


@pytest.mark.parametrize("stage", STAGES)
def test_the_plug_is_pulled(sandbox: Sandbox, old: Host, project: Path, matrix: Any, stage: str) -> None:
    """After the boot what served before serves, without anybody's help."""
    run = begin(old, project)
    simulated.wait_for_stage(old, stage)
    sandbox.powercut(old.name)
    run.kill()
    run.wait()
    sandbox.up(old.name, keep=True)
    simulated.watch(old)
    assert serves_within(old, "old", 60), old.shell("journalctl -b --no-pager -u 'sglang*' | tail -40").stdout
    old.shell("timeout 30 sh -c 'while test -e /var/lib/sglang/intent.json; do sleep 0.2; done'", check=True)
    matrix(
        "plug pulled", f"at {stage}", "the run fails", "the old one serves again after boot", converges(old, project)
    )


def test_the_plug_is_pulled_on_the_first_deploy(sandbox: Sandbox, untouched: Host, project: Path, matrix: Any) -> None:
    """Nothing served before, so the activation is finished after the boot."""
    run = begin(untouched, project)
    simulated.wait_for_stage(untouched, "ladder")
    sandbox.powercut(untouched.name)
    run.kill()
    run.wait()
    sandbox.up(untouched.name, keep=True)
    simulated.watch(untouched)
    assert serves_within(untouched, "new", 60)
    untouched.shell(RECOVERED, check=True)
    after = "the boot finished it"
    matrix("plug pulled", "first deploy, ladder", "the run fails", after, converges(untouched, project))


@pytest.mark.parametrize("stage", STAGES)
def test_the_activation_is_killed(old: Host, project: Path, matrix: Any, stage: str) -> None:
    at_stage(old, stage, "systemctl kill --signal=KILL --kill-whom=all sglang-job-activation")
    run = deploy(old, project)
    assert run.code != 0, run.text
    assert run.lines_with("sglang-job-activation.service ended without a result"), run.text
    assert serves_within(old, "old", 30)
    old.shell(RECOVERED, check=True)
    sees = "ended without a result"
    matrix("activation killed", f"at {stage}", sees, "the old one serves again", converges(old, project))


@pytest.mark.parametrize(
    ("stage", "number"), [(stage, number) for stage in STAGES for number in (signal.SIGKILL, signal.SIGTERM)]
)
def test_the_controller_is_killed(old: Host, project: Path, matrix: Any, stage: str, number: signal.Signals) -> None:
    """For the host it changes nothing."""
    run = begin(old, project)
    simulated.wait_for_stage(old, stage)
    run.send_signal(number)
    run.wait(timeout=20)
    row = converges(old, project)
    starts = old.shell(f"cat {simulated.EVENTS} | grep -c 'service started'").stdout.strip()
    assert starts == "1", "the run that came after joined it, or found it done"
    matrix(f"controller killed ({number.name})", f"at {stage}", "-", "the activation went on", row)


@pytest.mark.parametrize("stage", STAGES)
def test_the_connection_is_cut(old: Host, project: Path, matrix: Any, stage: str) -> None:
    run = begin(old, project)
    simulated.wait_for_stage(old, stage)
    sessions = "kill -KILL $(pgrep -P $(systemctl show --value --property=MainPID ssh))"
    old.shell(sessions)  # its own as well
    assert run.wait(timeout=90) != 0
    assert serves_within(old, "new", 30)
    matrix("connection cut", f"at {stage}", "the run fails", "the switch went on", converges(old, project))


def test_the_link_is_dead(old: Host, project: Path, matrix: Any) -> None:
    """Nobody says that the connection is gone: the run notices it by the silence."""
    device = network.device(old.place, old.record.index)
    run = begin(old, project)
    simulated.wait_for_stage(old, "start")
    subprocess.run(["ip", "link", "set", device, "down"], check=True)
    try:
        assert run.wait(timeout=90) != 0
    finally:
        subprocess.run(["ip", "link", "set", device, "up"], check=True)
    assert serves_within(old, "new", 30)
    matrix("link dead", "at start", "the run fails within 40 s", "the switch went on", converges(old, project))


def test_a_second_controller_is_told_who_works_here(old: Host, project: Path, matrix: Any) -> None:
    fault(old, "slow-load:6")
    first = begin(old, project)
    simulated.wait_for_stage(old, "start")
    second = deploy(old, project, "old")
    sees = "another activation is under way, by root@"
    assert second.code != 0
    assert second.lines_with(sees), second.text
    assert first.wait(timeout=60) == 0
    matrix("two controllers", "at start", sees, "the first one's release serves", converges(old, project))


def test_the_server_is_killed_by_hand_during_the_ladder(old: Host, project: Path, matrix: Any) -> None:
    at_stage(old, "ladder", "systemctl kill --signal=KILL --kill-whom=main sglang-server")
    run = deploy(old, project)
    assert (code(run), serving(old)) == (3, "old"), run.text
    matrix("server killed by hand", "at ladder", "code 3", "the old one serves again", converges(old, project))


def test_a_unit_masked_by_hand(old: Host, project: Path, matrix: Any) -> None:
    old.shell("ln -sf /dev/null /etc/systemd/system/sglang-server.service; systemctl daemon-reload", check=True)
    matrix("unit masked by hand", "before", "code 0", "the new one serves", converges(old, project))


def test_the_last_good_release_is_gone(old: Host, project: Path, matrix: Any) -> None:
    """Nothing to go back to: the host is stopped, and the run says so."""
    old.shell("rm -r /var/lib/sglang/releases/$(basename $(readlink /var/lib/sglang/last-good))", check=True)
    fault(old, "die-loading")
    run = deploy(old, project)
    sees = "There is no release that served before. The host is stopped"
    assert (code(run), bool(run.lines_with(sees)), serving(old)) == (4, True, None), run.text
    matrix("last good deleted, new one dies", "switch", f"code 4: {sees}", "stopped", converges(old, project))


def test_both_releases_fail(old: Host, project: Path, matrix: Any) -> None:
    old.write_file(simulated.FAULTS, json.dumps({"fault": "die-loading"}))
    run = deploy(old, project)
    sees = "does not serve either"
    assert (code(run), bool(run.lines_with(sees)), serving(old)) == (4, True, None), run.text
    matrix("new and old die", "switch", f"code 4: {sees}", "stopped", converges(old, project))


def test_somebody_takes_the_gpu_between_stop_and_start(old: Host, project: Path, matrix: Any) -> None:
    gone = "while grep -q sandbox-gpu /proc/net/unix; do sleep 0.02; done"
    at_stage(old, "stop", f"{gone}; systemd-run --unit=foreign {CLAIM}")
    run = deploy(old, project)
    sees = "still held by pid"
    assert (code(run), bool(run.lines_with(sees)), serving(old)) == (4, True, None), run.text
    again = deploy(old, project)
    assert again.lines_with("5000 MiB held by"), again.text
    matrix("GPU taken by somebody", "between stop and start", f"code 4: {sees}", "stopped", converges(old, project))


def test_somebody_takes_the_port_between_stop_and_start(old: Host, project: Path, matrix: Any) -> None:
    takes = "until python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 30000))' 2>/dev/null; do :; done"
    at_stage(old, "stop", f"{takes}; systemd-run --unit=foreign python3 -m http.server -b 127.0.0.1 30000")
    run = deploy(old, project)
    sees = "port 30000"
    assert (code(run), bool(run.lines_with(sees)), serving(old)) == (4, True, None), run.text
    matrix("port taken by somebody", "between stop and start", f"code 4: {sees}", "stopped", converges(old, project))


def test_gpu_memory_stays_in_use_after_the_old_server_is_gone(old: Host, project: Path, matrix: Any) -> None:
    old.set_gpus(release_s=30)
    run = deploy(old, project)
    sees = "in use by no process that nvidia-smi shows"
    assert (code(run), bool(run.lines_with(sees)), serving(old)) == (3, True, "old"), run.text
    matrix(
        "GPU memory not given back",
        "after stop",
        f"code 3: {sees}",
        "the old one serves again",
        converges(old, project),
    )


def test_gpu_memory_stays_in_use_on_a_first_deploy(untouched: Host, project: Path, matrix: Any) -> None:
    """The new server is stopped for giving no tokens, and its memory stays: the host is stopped, and that is said."""
    fault(untouched, "no-tokens")
    untouched.set_gpus(release_s=60)
    run = deploy(untouched, project)
    sees = "in use by no process that nvidia-smi shows"
    assert (code(run), bool(run.lines_with(sees)), serving(untouched)) == (4, True, None), run.text
    row = converges(untouched, project)
    matrix("GPU memory not given back", "first deploy, no tokens", f"code 4: {sees}", "stopped", row)


def test_somebody_takes_the_port_on_a_first_deploy(untouched: Host, project: Path, matrix: Any) -> None:
    at_stage(untouched, "gpus", "systemd-run --unit=foreign python3 -m http.server -b 127.0.0.1 30000")
    run = deploy(untouched, project)
    sees = "port 30000"
    assert (code(run), bool(run.lines_with(sees)), serving(untouched)) == (4, True, None), run.text
    row = converges(untouched, project)
    matrix("port taken by somebody", "first deploy, before start", f"code 4: {sees}", "stopped", row)


@pytest.mark.parametrize("name", ["ignore-sigterm", "orphan-scheduler"])
def test_an_old_server_that_does_not_want_to_go(old: Host, project: Path, matrix: Any, name: str) -> None:
    fault(old, name, "old")
    old.run(["systemctl", "restart", "sglang-server"])
    assert serves_within(old, "old", 20)
    run = deploy(old, project)
    assert (run.code, serving(old)) == (0, "new"), run.text
    left = old.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]).stdout.split()
    assert len(left) == 1
    matrix(f"old server: {name}", "stop", "code 0", "the new one serves", converges(old, project))


@contextmanager
def small_file_system(host: Host, folder: str, fill: bool) -> Iterator[None]:
    """A file system of 1 MiB with the folder's own content in its place, full at once or when the caller says so."""
    copy = f"rm -rf /root/copy; cp -a {folder} /root/copy"
    size = f"$(( $(du -sk {folder} | cut -f1) + 200 ))k"
    mount = f"mount -t tmpfs -o mode=755,size={size} tmpfs {folder} && cp -a /root/copy/. {folder}/"
    host.shell(f"{copy} && {mount}", check=True)
    if fill:
        host.shell(FILL.format(folder=folder))
        assert host.shell(f"echo more >{folder}/more").returncode != 0
    try:
        yield
    finally:
        back = f"rm -f {folder}/fill; rm -rf /root/copy; cp -a {folder} /root/copy; umount -l {folder}"
        host.shell(f"{back}; cp -a /root/copy/. {folder}/", check=True)


FILL = "cat /dev/zero >{folder}/fill; true"
FULL = {
    "state, before the run": ("/var/lib/sglang", "", "Stage release.json", 1, "old"),
    "state, at gates": ("/var/lib/sglang", "gates", "refused, nothing was changed: OSError", 2, "old"),
    "state, at stop": ("/var/lib/sglang", "stop", "its verdict could not be kept", 6, "new"),
    "units, at stop": ("/etc/systemd/system", "stop", "No space left on device", 3, "old"),
    # Events are left out then, and the result takes the room of the lock that was let go.
    "progress, at stop": ("/run/sglang", "stop", " serves", 0, "new"),
    "progress, before the run": ("/run/sglang", "", "the job could not be started", 1, "old"),
}


@pytest.mark.parametrize("name", FULL)
def test_a_full_disk(old: Host, project: Path, matrix: Any, name: str) -> None:
    folder, stage, sees, ends, serves = FULL[name]
    old.shell("cd /var/lib/sglang/releases && ls | grep -v $(basename $(readlink ../active)) | xargs rm -rf")
    with small_file_system(old, folder, fill=not stage):
        if stage:
            at_stage(old, stage, FILL.format(folder=folder))
        run = deploy(old, project)
        assert (code(run), bool(run.lines_with(sees)), serving(old)) == (ends, True, serves), run.text
    matrix(
        f"disk full: {name.partition(',')[0]}",
        name.partition(", ")[2],
        sees,
        f"{serves} serves",
        converges(old, project),
    )


def test_a_disk_that_is_too_small_for_the_engine(bare: Host, matrix: Any) -> None:
    """The look saw another file system. One that fills up in the middle: test_engine_install.py."""
    bare.shell(
        "rm -r /opt/sglang/engines/*; mount -t tmpfs -o mode=755,size=300m tmpfs /opt/sglang/engines", check=True
    )
    run = playbook.deploy(bare)
    sees = "free the difference or grow the file system"
    assert run.code != 0
    assert run.lines_with(sees), run.text
    assert bare.shell("ls /opt/sglang/engines | grep -v lock$").stdout == ""
    bare.shell("umount -l /opt/sglang/engines", check=True)
    again = playbook.deploy(bare)
    assert (again.code, playbook.ask(bare)) == (0, "4"), again.text
    matrix("disk too small: engine", "first deploy", sees, "nothing runs yet", "installs it, serves")


def test_a_read_only_etc(old: Host, project: Path, matrix: Any) -> None:
    old.shell("mount --bind /etc /etc && mount -o remount,bind,ro /etc", check=True)
    try:
        run = deploy(old, project)
        assert (code(run), serving(old)) == (3, "old"), run.text
        assert run.lines_with("Read-only file system"), run.text
    finally:
        old.shell("umount -l /etc", check=True)
    matrix(
        "/etc read-only", "before", "code 3: Read-only file system", "the old one serves again", converges(old, project)
    )


def test_a_held_host_is_left_stopped(old: Host, project: Path, matrix: Any) -> None:
    held = playbook.pyinfra("commands/hold.py", "-y", "--limit", old.name, "--data", "why=new cards")
    assert (held.code, serving(old)) == (0, None), held.text
    run = deploy(old, project)
    sees = "new cards; agree with them"
    assert run.code != 0
    assert run.lines_with(sees), run.text
    old.restart()
    simulated.watch(old)
    time.sleep(1)
    assert serving(old) is None
    off = playbook.pyinfra("commands/hold.py", "-y", "--limit", old.name, "--data", "off=true")
    assert off.code == 0, off.text
    matrix("host held by somebody", "before", sees, "stopped, through a boot too", converges(old, project))


def test_a_rollback_goes_to_the_release_before_and_a_deploy_comes_back(old: Host, project: Path, matrix: Any) -> None:
    assert converges(old, project)
    run = playbook.pyinfra("commands/rollback.py", "-y", "--limit", old.name)
    assert (run.code, serving(old)) == (0, "old"), run.text
    matrix("rollback", "by hand", "code 0", "the old one serves", converges(old, project))
