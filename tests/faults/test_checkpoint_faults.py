"""What goes wrong while a deploy fetches a checkpoint: it ends whole and checked, or is refused; the server stays."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import hub
from sandbox.fleet import Sandbox
from sandbox.machine import Host
from sandbox.model_hub.running import Running
from tests import playbook
from tests.faults import simulated
from tests.playbook import TINY, main_pid

pytestmark = pytest.mark.host

WEIGHTS = "model.safetensors"
TOKEN = "hf_0123456789abcdefghij"
_FOUND = f"[h]{TOKEN[1:]}"  # as a pattern, which does not find itself
REPOSITORY = TINY.rpartition("/")[0]
# All that is known of a checkpoint: its files, and that they were checked.
GONE = f"rm -rf {REPOSITORY} /var/lib/sglang/checkpoints"
SLOW = {"fault": "slow", "file": WEIGHTS, "rate": 150_000}  # 5 s for the file


@pytest.fixture
def faultless(old: Host) -> Iterator[Running]:
    """The sandbox's hub, without faults; the host serves."""
    running = hub.running(old.place)
    running.set_faults()
    running.forget()
    yield running
    running.set_faults()


@pytest.fixture
def models(old: Host, faultless: Running) -> Running:
    """The hub, and the host's checkpoint is gone."""
    old.shell(GONE, check=True)
    return faultless


def deploy(host: Host, project: Path, *words: str) -> playbook.Run:
    return simulated.deploy(host, project, "old", *words)


def is_whole(host: Host) -> bool:
    """By sha256sum, against the files of this project; and nothing of the fetch is left."""
    of_project = playbook.ROOT / "sandbox/checkpoint/tiny"
    wanted = subprocess.run(["sh", "-c", "sha256sum *"], cwd=of_project, capture_output=True, text=True).stdout
    found = host.shell(f"cd {TINY} && sha256sum *; ls -A {REPOSITORY}/*.incomplete 2>/dev/null").stdout
    return found == wanted


def begin(host: Host, project: Path, *words: str) -> subprocess.Popen[str]:
    """A deploy that fetches by now, of the largest file a part."""
    controller = simulated.begin(host, project, "old", *words)
    while host.shell(f"test -s {TINY}.incomplete/{WEIGHTS}").returncode:
        assert controller.poll() is None, controller.communicate()
    return controller


def test_all_that_passes_is_overcome_in_one_deploy(old: Host, project: Path, models: Running) -> None:
    pid = main_pid(old)
    models.set_faults(
        {"fault": "429", "first": 2, "retry_after": 1},
        {"fault": "503", "file": "config.json", "first": 1},
        {"fault": "expired", "first": 1},
        {"fault": "reset", "file": WEIGHTS, "first": 1, "after": 300_000},
        {"fault": "truncated", "file": "tokenizer.json", "first": 1},
        {"fault": "no-ranges", "file": "tokenizer_config.json"},
    )
    run = deploy(old, project)
    assert run.code == 0, run.text
    assert is_whole(old)
    assert {request["fault"] for request in models.requests()} >= {"429", "503", "expired", "reset", "truncated"}
    # The first 300 000 bytes were kept when the connection was reset, but for what was on its way.
    assert models.sent(file=WEIGHTS) < 2 * 822_680 - 200_000
    assert main_pid(old) == pid


NO_WAY_ROUND: list[tuple[dict[str, Any], str, str]] = [
    ({"fault": "wrong-bytes", "file": WEIGHTS}, "gives other content than the manifest says", "Run again"),
    ({"fault": "wrong-length", "file": WEIGHTS}, "has 821680 bytes instead of 822680", "Run again"),
    ({"fault": "gated", "token": TOKEN}, "lets nobody read", "hub_token_file"),
]


def test_what_does_not_pass_is_refused_and_the_next_run_is_whole(old: Host, project: Path, models: Running) -> None:
    pid = main_pid(old)
    for rule, what, remedy in NO_WAY_ROUND:
        models.set_faults(rule)
        run = deploy(old, project)
        assert simulated.code(run) == 2, run.text
        assert remedy in run.lines_with(what)[-1], run.text
        assert old.shell(f"ls {TINY}").returncode != 0, "nothing takes its place before all of it is right"
    assert (main_pid(old), simulated.serving(old)) == (pid, "old")
    models.set_faults()
    assert deploy(old, project).code == 0
    assert is_whole(old)


def test_a_gated_repository_comes_with_a_token_that_nobody_sees(
    old: Host, project: Path, models: Running, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    models.set_faults({"fault": "gated", "token": TOKEN}, SLOW)
    words = ("--data", f"hub_token_file={token}")
    controller = begin(old, project, *words)
    seen = old.shell(f"grep -las {_FOUND} /proc/[0-9]*/cmdline /proc/[0-9]*/environ").stdout
    shown = controller.communicate(timeout=120)[1]
    assert controller.returncode == 0, shown
    assert TOKEN not in seen + shown
    assert not seen, "neither an argument nor the environment of a process"
    assert is_whole(old)
    assert not any(request["token"] for request in models.requests(side="cdn"))
    found = old.shell(f"grep -rls {_FOUND} /run /etc /var/lib/sglang /var/log /root; stat -c %a /etc/sglang/hub-token")
    assert found.stdout.split() == ["/etc/sglang/hub-token", "600"]
    # It goes when it is no longer named.
    assert deploy(old, project).code == 0
    assert old.shell("ls /etc/sglang/hub-token").returncode != 0


def test_a_listing_that_is_cut_is_refused_and_the_whole_one_is_brought_back(
    old: Host, models: Running, tmp_path: Path, project: Path
) -> None:
    copy = playbook.copy_of_project(tmp_path)
    (copy / "group_data/profiles/old.yaml").write_text((project / "group_data/profiles/old.yaml").read_text())
    path = copy / "group_data/checkpoints/sandbox-tiny.yaml"
    whole = path.read_text()
    path.write_text(re.sub(r"total: .*", "", whole.partition("files:")[0]) + "files: null\n")
    models.set_faults({"fault": "cut-listing", "page": 3})
    run = deploy(old, copy)
    assert simulated.code(run) == 2, run.text
    assert run.lines_with("lists 3 files and names 5"), run.text
    models.set_faults()
    run = deploy(old, copy)
    assert run.code == 0, run.text
    assert run.lines_with("sandbox-tiny.yaml holds the manifest now: commit it"), run.text
    assert is_whole(old)
    assert "git_blob_id: 45be7246cf2a6b34ef1939a19f658ca29898709e" in path.read_text()
    # Committed, it is what the host was checked against: nothing is left to do.
    assert deploy(old, copy).changed == 0


def test_a_fetch_outlives_its_controller_and_the_next_run_finds_it_whole(
    old: Host, project: Path, models: Running
) -> None:
    models.set_faults(SLOW)
    controller = begin(old, project)
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    second = simulated.begin(old, project, "old")
    third = deploy(old, project)
    shown = second.communicate(timeout=120)[1]
    assert (second.returncode, third.code) == (0, 0), shown + third.text
    assert is_whole(old)
    assert models.sent(file=WEIGHTS) == 822_680, "all three had the one fetch"


def test_a_power_cut_in_the_middle_is_made_good_by_the_next_run(
    sandbox: Sandbox, old: Host, project: Path, models: Running
) -> None:
    models.set_faults(SLOW)
    controller = begin(old, project)
    sandbox.powercut(old.name)
    controller.communicate()
    assert controller.returncode != 0
    sandbox.up(old.name, keep=True)
    simulated.watch(old)
    assert old.shell(f"ls {TINY}").returncode != 0
    run = deploy(old, project)
    assert run.code == 0, run.text
    assert is_whole(old)
    assert simulated.serving(old) == "old"


def test_a_disk_that_fills_up_meanwhile_is_said_and_what_came_is_kept(
    old: Host, project: Path, models: Running
) -> None:
    models.set_faults(SLOW)
    old.shell("mount -t tmpfs -o size=100M,mode=755 tmpfs /srv/models", check=True)
    try:
        controller = begin(old, project)
        old.shell("head -c 200M /dev/zero >/srv/models/in-the-way")
        shown = controller.communicate(timeout=120)[1]
        assert controller.returncode != 0
        assert "free the difference and run again: what was fetched is kept" in shown, shown
        assert old.shell(f"ls {TINY}").returncode != 0
        # As long as it is full a run is refused before it changes anything.
        assert "nothing was changed" in deploy(old, project).text
        old.run(["rm", "/srv/models/in-the-way"])
        models.set_faults()
        assert deploy(old, project).code == 0
        assert is_whole(old)
    finally:
        old.shell(f"umount /srv/models; {GONE}", check=True)


def test_a_file_that_was_tampered_with_is_set_aside_and_fetched_alone(
    old: Host, project: Path, faultless: Running
) -> None:
    if not is_whole(old):
        assert deploy(old, project).code == 0
    faultless.forget()
    pid = main_pid(old)
    old.shell(f"printf x | dd of={TINY}/{WEIGHTS} bs=1 seek=1000 conv=notrunc; truncate -s 99 {TINY}/config.json")
    # Until then no release starts from it.
    start = old.run(["sglang-box", "start"], check=False)
    assert start.returncode != 0
    assert "changed since its check" in start.stdout + start.stderr
    run = deploy(old, project)
    assert run.code == 0, run.text
    assert is_whole(old)
    assert {request["file"] for request in faultless.requests() if request["range"]} == {WEIGHTS, "config.json"}
    kept = old.shell(f"cd {TINY}.aside && ls; rm -r {TINY}.aside").stdout.split()
    assert [name.split(".20")[0] for name in kept] == ["config.json", WEIGHTS]
    assert (main_pid(old), simulated.serving(old)) == (pid, "old")
