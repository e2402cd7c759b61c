"""Servers that somebody else started: refused by name, evicted on request, startable again. Others are never hit."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.machine import Host
from tests import playbook
from tests.playbook import ask, deploy, main_pid, pyinfra, unit, would_change

pytestmark = pytest.mark.host

EVICT = ("--data", "evict=true")
CARD = "0000:01:00.0"
SECRET = "planted-in-the-environment"
PYTHON = "$(ls -d /opt/sglang/engines/*/bin/python | tail -1)"  # one of those that are kept here
REAL = (
    f"cd /root; CANARY={SECRET} PYTHONPATH=/opt/sandbox/cpu SANDBOX_GPU_CLAIM={CARD}/61440 HF_HUB_OFFLINE=1 "
    f"OMP_NUM_THREADS=2 nohup {PYTHON} -m sglang.launch_server --model-path /opt/sandbox/tiny "
    "--served-model-name tiny --host 127.0.0.1 --port 31000 --device cpu --attention-backend torch_native "
    "--sampling-backend pytorch --grammar-backend none --mem-fraction-static 0.3 --max-total-tokens 4096 "
    "--max-running-requests 8 --sleep-on-idle >/root/hand.log 2>&1 </dev/null & echo $!"
)
# The real module names, and what is seen of a server: memory of a card, a port, a scheduler with its title.
FAKE = """\
import multiprocessing, os, signal, socket, sys
sys.path.insert(0, "/opt/sandbox/gpu")
import claim

def schedule():
    import setproctitle
    setproctitle.setproctitle("sglang::scheduler_TP0")
    held = claim.claim(["0000:01:00.0"], 61440)
    signal.pause()

if __name__ == "__main__":
    words = dict(word.split("=") for word in sys.argv[1:])
    listening = socket.create_server(("127.0.0.1", int(words["port"]))) if "port" in words else None
    held = claim.claim(["0000:01:00.0"], int(words["mib"])) if "mib" in words else None
    if "scheduler" in words:
        multiprocessing.get_context("spawn").Process(target=schedule).start()
    signal.pause()
"""
KIMI = """\
[Service]
Environment=PYTHONPATH=/opt/kimi
ExecStart=/usr/bin/python3 -m sglang.launch_server mib=61440 port=31000
Restart=always
RestartSec=100ms
[Install]
WantedBy=multi-user.target
"""


def furnish(host: Host) -> None:
    for path in ("sglang/launch_server.py", "sglang_router/launch_router.py"):
        host.write_file(f"/opt/kimi/{path}", FAKE)
        host.write_file(f"/opt/kimi/{Path(path).parent}/__init__.py", "")
    host.write_file("/etc/systemd/system/kimi.service", KIMI)
    host.run(["systemctl", "daemon-reload"])


@pytest.fixture
def strange(host: Host) -> Iterator[Host]:
    """The served host, with what a stranger needs; his unit is gone afterwards."""
    furnish(host)
    yield host
    host.shell(
        "systemctl disable --now kimi; rm -rf /etc/systemd/system/kimi.service /opt/kimi; systemctl daemon-reload"
    )


def background(host: Host, command: str, user: str = "root") -> str:
    """Pid of what a login left behind, once nvidia-smi or a socket shows it."""
    script = f"{command} >/dev/null 2>&1 </dev/null & echo $!"
    pid = host.run(["bash", "-c", script], user=user).stdout.strip()
    shown = f"until nvidia-smi --query-compute-apps=pid --format=csv | grep -qx {pid} || ss -Hltnp | grep -q pid={pid},"
    host.shell(f"timeout 20 bash -c {shlex.quote(f'{shown}; do sleep 0.1; done')}", check=True)
    return pid


def lives(host: Host, pid: str) -> bool:
    return host.shell(f"kill -0 {pid}").returncode == 0


def gone(host: Host, pid: str) -> None:
    host.shell(f"kill -KILL {pid}; timeout 10 sh -c 'while kill -0 {pid}; do sleep 0.1; done'")


def test_a_server_under_nohup_is_refused_then_evicted_and_started_again(bare: Host, matrix: Any) -> None:
    """The real server, started by hand with the same engine, on another port and the card that the plan needs."""
    healthy = "timeout 150 sh -c 'until curl -sf -m 5 http://127.0.0.1:31000/health; do sleep 0.5; done'"
    pid = bare.run(["bash", "-c", REAL]).stdout.strip()
    bare.shell(healthy, check=True)
    refused = deploy(bare)
    assert refused.code != 0
    [line] = refused.lines_with("have it stopped in this run: --data evict=true")
    assert f"GPU 0: 60.0 GiB, held by the sglang server pid {pid} (root, " in line
    assert f"stop it (kill {pid})" in line
    assert lives(bare, pid)
    assert bare.shell("test -e /var/lib/sglang/releases").returncode != 0, "nothing was changed"

    run = deploy(bare, *EVICT)
    assert (run.code, ask(bare)) == (0, "4"), run.text
    assert not lives(bare, pid)
    assert main_pid(bare) != pid
    assert SECRET not in run.text + refused.text
    journal = bare.run(["journalctl", "--no-pager", "--output=cat", "-u", "sglang-job-activation"]).stdout
    assert SECRET not in journal
    assert would_change(bare) == []

    said = bare.run(["sglang-box", "evicted"]).stdout
    [start] = [line.partition("start again: ")[2] for line in said.splitlines() if "start again" in line]
    assert SECRET not in said
    assert start in run.text
    bare.run(["systemctl", "stop", "sglang-server"])
    bare.shell(f"nohup {start} >/root/again.log 2>&1 </dev/null &", check=True)
    bare.shell(healthy, check=True)
    matrix(
        "server under nohup",
        "before",
        "its pid, GPU, GiB; --data evict=true",
        "left alone, until evicted",
        "evicts it, serves",
    )


def test_a_unit_that_restarts_its_server_is_stopped_and_not_just_its_process(strange: Host, matrix: Any) -> None:
    strange.run(["systemctl", "enable", "--now", "kimi"])
    pid, own = main_pid_of(strange, "kimi.service"), main_pid(strange)
    strange.shell("timeout 20 sh -c 'until ss -Hltn sport = 31000 | grep -q .; do sleep 0.1; done'", check=True)
    refused = deploy(strange)
    assert refused.code != 0
    [line] = refused.lines_with("kimi.service (Restart=always, enabled at boot brings it back)")
    assert "stop it (systemctl stop kimi.service)" in line
    assert main_pid_of(strange, "kimi.service") == pid
    assert "kimi.service" in pyinfra("commands/status.py", "--limit", strange.name).text

    [named] = would_change(strange, *EVICT)
    assert f"evicts pid {pid} (kimi.service" in named
    run = deploy(strange, *EVICT)
    assert run.code == 0, run.text
    assert run.lines_with("kimi.service is enabled and comes back at the next boot, unless: systemctl disable kimi")
    assert unit(strange, "ActiveState", "NRestarts", name="kimi.service") == ["inactive", "0"]
    assert main_pid(strange) == own, "our own server was not restarted for it"
    assert "start again: systemctl start kimi.service" in strange.run(["sglang-box", "evicted"]).stdout
    assert would_change(strange) == []
    matrix(
        "server in a unit of somebody",
        "before",
        "kimi.service brings it back",
        "left alone, until evicted",
        "evicts it by its unit",
    )


def main_pid_of(host: Host, name: str) -> str:
    return unit(host, "MainPID", name=name)[0]


def test_a_unit_that_also_runs_something_else_is_not_stopped_for_a_server(strange: Host, matrix: Any) -> None:
    both = "python3 -m http.server 31004 & python3 -m sglang.launch_server mib=5000 port=31000; wait"
    start = f"systemd-run --unit=kimi-and-more --setenv=PYTHONPATH=/opt/kimi sh -c {shlex.quote(both)}"
    listening = "until ss -Hltn sport = 31000 | grep -q . && ss -Hltn sport = 31004 | grep -q .; do sleep 0.1; done"
    strange.shell(f"{start} && timeout 20 sh -c {shlex.quote(listening)}", check=True)
    pid = main_pid_of(strange, "kimi-and-more.service")
    try:
        run = deploy(strange, *EVICT)
        assert run.code != 0
        [line] = run.lines_with("it cannot be evicted, because kimi-and-more.service also runs pid")
        assert "python3 -m http.server 31004; stop it yourself" in line
        assert main_pid_of(strange, "kimi-and-more.service") == pid
    finally:
        strange.run(["systemctl", "stop", "kimi-and-more"])
    matrix(
        "unit with other programs, too", "evict=true", "it cannot be evicted, because", "left alone", "refused again"
    )


def test_a_transient_unit_is_gone_once_stopped_and_so_its_process_is_kept(strange: Host) -> None:
    words = ["--unit=once", "--setenv=PYTHONPATH=/opt/kimi", "--uid=admin", "--working-directory=/srv"]
    strange.run(["systemd-run", *words, "python3", "-m", "sglang.launch_server", "mib=5000", "port=31000"])
    listening = "timeout 20 sh -c 'until ss -Hltn sport = 31000 | grep -q .; do sleep 0.1; done'"
    strange.shell(listening, check=True)
    pid = main_pid_of(strange, "once.service")
    run = deploy(strange, *EVICT)
    assert run.code == 0, run.text
    script = strange.shell(f"ls /var/lib/sglang/evicted/*_{pid}.sh", check=True).stdout.strip()
    assert f"start again: bash {script}" in strange.run(["sglang-box", "evicted"]).stdout
    strange.shell(f"nohup bash {script} >/dev/null 2>&1 </dev/null & {listening}", check=True)
    again = strange.shell("ss -Hltnp sport = 31000 | grep -o 'pid=[0-9]*' | cut -d= -f2", check=True).stdout.strip()
    try:
        seen = strange.run(["sh", "-c", f"stat -c %U /proc/{again}; readlink /proc/{again}/cwd"]).stdout.split()
        assert seen == ["admin", "/srv"]
    finally:
        gone(strange, again)


def test_when_the_new_server_dies_the_run_says_how_the_evicted_one_is_started(
    bare: Host, tmp_path: Path, matrix: Any
) -> None:
    furnish(bare)
    bare.run(["systemctl", "start", "kimi"])
    project = playbook.copy_of_project(tmp_path)
    dies = "extends: sandbox\nenvironment: {SANDBOX_ENGINE_FAULT: die-loading}\n"
    (project / "group_data/profiles/dies.yaml").write_text(dies)
    run = deploy(bare, *EVICT, "--data", "profile=dies", project=project)
    assert run.code != 0
    [line] = run.lines_with("stopped and not serving (code 4)")
    assert "Evicted, and started again by: systemctl start kimi.service" in line
    matrix("new one dies after an eviction", "first deploy", "code 4, and how the evicted one starts", "stopped", "-")


def test_what_nobody_can_identify_is_refused_and_never_ended(bare: Host, matrix: Any) -> None:
    """A holder of memory, and a listener on the port: neither is a known server, whatever its command line says."""
    holder = background(bare, f"python3 /opt/sandbox/gpu/claim.py --gpus {CARD} --mib 9000")
    web = background(bare, "python3 -m http.server 30000 --bind 127.0.0.1 --directory /srv/sglang.launch_server")
    try:
        for words in ((), EVICT):
            run = deploy(bare, *words)
            assert run.code != 0
            assert run.lines_with(f"GPU {CARD}: 9000 MiB held by pid {holder}"), run.text
            assert run.lines_with(f"port 30000: is in use on 127.0.0.1 by pid {web}"), run.text
            assert not run.lines_with("evict=true")
            assert lives(bare, holder)
            assert lives(bare, web)
    finally:
        gone(bare, holder)
        gone(bare, web)
    matrix(
        "unknown holder, unknown listener", "evict=true", "GPU and port with their pids", "left alone", "refused again"
    )


def test_a_stray_router_on_the_port_is_known_and_evicted(bare: Host, matrix: Any) -> None:
    """Beside a server that is in nobody's way, and stays."""
    furnish(bare)
    python = "env PYTHONPATH=/opt/kimi nohup python3 -m"
    router = background(bare, f"{python} sglang_router.launch_router port=30000", user="admin")
    other = background(bare, f"{python} sglang.launch_server port=31001")
    refused = deploy(bare)
    assert refused.lines_with(f"port 30000: held by the sglang router pid {router} (admin, "), refused.text
    assert lives(bare, router)
    run = deploy(bare, *EVICT)
    assert (run.code, ask(bare)) == (0, "4"), run.text
    assert (lives(bare, router), lives(bare, other)) == (False, True)
    assert "(admin)" in bare.run(["sglang-box", "evicted"]).stdout
    matrix(
        "stray router on the port",
        "before",
        "its pid; --data evict=true",
        "left alone, until evicted",
        "evicts it, serves",
    )


def test_an_orphaned_scheduler_is_known_by_its_title_and_its_memory(strange: Host, matrix: Any) -> None:
    python = f"PYTHONPATH=/opt/kimi nohup {PYTHON} -m"
    main = background(strange, f"{python} sglang.launch_server port=31002 scheduler=1")
    holder = "nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader | grep scheduler_TP0"
    wait = f"timeout 30 sh -c {shlex.quote(f'until {holder}; do sleep 0.1; done')}"
    orphan = strange.shell(wait, check=True).stdout.split(",")[0]
    gone(strange, main)
    assert strange.run(["ps", "-o", "ppid=", "-p", orphan]).stdout.strip() == "1"
    own = main_pid(strange)
    assert deploy(strange).lines_with(f"held by the sglang worker pid {orphan} (root, ")
    run = deploy(strange, *EVICT)
    assert run.code == 0, run.text
    assert run.lines_with("it was what a dead server left")
    assert (lives(strange, orphan), main_pid(strange)) == (False, own)
    matrix(
        "orphaned scheduler, parent 1",
        "before",
        "its pid; --data evict=true",
        "left alone, until evicted",
        "evicts it, ours untouched",
    )


def test_a_server_that_a_loop_starts_again_is_given_up_and_nothing_of_ours_is_stopped(
    strange: Host, matrix: Any
) -> None:
    loop = "while :; do PYTHONPATH=/opt/kimi python3 -m sglang.launch_server mib=5000 port=31003; done"
    shell = strange.run(["bash", "-c", f"nohup bash -c {shlex.quote(loop)} >/dev/null 2>&1 </dev/null & echo $!"])
    strange.shell("timeout 20 sh -c 'until ss -Hltn sport = 31003 | grep -q .; do sleep 0.1; done'", check=True)
    own = main_pid(strange)
    try:
        run = deploy(strange, *EVICT)
        assert run.code != 0
        [line] = run.lines_with("the job failed (code 1)")
        assert f"by pid {shell.stdout.strip()} (root, " in line, "the loop is named"
        assert (main_pid(strange), ask(strange)) == (own, "4")
    finally:
        gone(strange, shell.stdout.strip())
        strange.shell("kill $(ss -Hltnp sport = 31003 | grep -o 'pid=[0-9]*' | cut -d= -f2)")
    matrix("evicted server that comes back", "evict=true", "code 2, the loop is named", "ours serves", "-")


def test_evict_in_a_file_is_refused(host: Host, tmp_path: Path) -> None:
    project = playbook.copy_of_project(tmp_path)
    page = project / "group_data/all.py"
    page.write_text(page.read_text() + "\nevict = True\n")
    run = deploy(host, project=project)
    assert run.code != 0
    assert run.lines_with("group_data: evict: stands in a file, and is for one run only"), run.text


def test_what_was_evicted_is_kept_for_root_alone(host: Host) -> None:
    """After the evictions of this file, and of this test alone where it runs alone."""
    furnish(host)
    pid = background(host, "PYTHONPATH=/opt/kimi nohup python3 -m sglang.launch_server mib=5000")
    assert deploy(host, *EVICT).code == 0
    listed = host.run(["sh", "-c", "stat -c '%a %U %n' /var/lib/sglang/evicted /var/lib/sglang/evicted/*"]).stdout
    modes = {line.rpartition(".")[2]: line.split()[:2] for line in listed.splitlines() if f"_{pid}." in line}
    assert modes == {"json": ["600", "root"], "sh": ["700", "root"]}
    assert listed.startswith("700 root /var/lib/sglang/evicted\n")
    kept = json.loads(host.shell(f"cat /var/lib/sglang/evicted/*_{pid}.json").stdout)
    assert kept["environment"]["PYTHONPATH"] == "/opt/kimi"
