"""Who is told when a server fails: a webhook and a command on the host, set up without a restart."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.machine import Host
from tests import playbook
from tests.playbook import deploy, main_pid

pytestmark = pytest.mark.host

SECRET = "T0PSECRET-0123456789"
WEBHOOK = {"webhook": f"http://127.0.0.1:8099/services/{SECRET}"}
FILE = "/etc/sglang/notify.json"
RECEIVED = "/root/received"
RECEIVER = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer
class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open("{RECEIVED}", "ab").write(body + b"\\n")
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
HTTPServer(("127.0.0.1", 8099), Receiver).serve_forever()
"""
# The pattern comes from a file, or the watch would see itself.
WATCH = (
    "while :; do cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' "
    "| grep -qFf /root/pattern && date >>/root/seen; sleep 0.05; done"
)
FAILS = """
[Unit]
OnFailure=sglang-notify@%n.service
StartLimitBurst=2
[Service]
LogNamespace=sglang
ExecStart=/bin/sh -c 'echo "Traceback:"; echo "ValueError: no such thing"; exit 3'
Restart=always
RestartSec=0.2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return playbook.copy_of_project(tmp_path)


@pytest.fixture(autouse=True)
def nobody_is_told_in_the_end(host: Host) -> Iterator[None]:
    yield
    run = deploy(host)
    assert run.code == 0, run.text


@pytest.fixture
def receiver(host: Host) -> Iterator[None]:
    host.write_file("/root/receiver.py", RECEIVER)
    host.run(["systemd-run", "--unit=receiver", "python3", "/root/receiver.py"])
    host.shell("timeout 10 sh -c 'until ss -Hltn | grep -q :8099; do sleep 0.1; done'", check=True)
    yield
    host.run(["systemctl", "stop", "receiver"])
    host.run(["rm", "-f", RECEIVED, "/root/receiver.py"])


def set_up(host: Host, project: Path, setting: dict[str, Any], *words: str) -> playbook.Run:
    page = project / "group_data" / "sandbox.py"
    page.write_text(f'profile = "sandbox"\nnotify = {setting!r}\n')
    run = deploy(host, *words, project=project)
    assert run.code == 0, run.text
    return run


def received(host: Host, path: str = RECEIVED) -> dict[str, Any]:
    """The one message that came, waited for."""
    host.shell(f"timeout 30 sh -c 'until test -s {path}; do sleep 0.1; done'", check=True)
    [line] = host.read_file(path).splitlines()
    host.run(["rm", path])
    message: dict[str, Any] = json.loads(line)
    return message


def journal_of_the_notifier(host: Host) -> str:
    host.run(["journalctl", "--namespace=sglang", "--sync"])
    return host.run(["journalctl", "--namespace=sglang", "-t", "sglang-notify", "-o", "cat", "-n", "1"]).stdout.strip()


def test_a_webhook_is_set_up_changed_and_removed_without_a_restart(host: Host, project: Path, receiver: None) -> None:
    pid, active = main_pid(host), host.run(["readlink", "/var/lib/sglang/active"]).stdout
    assert set_up(host, project, WEBHOOK).changed == 1
    assert json.loads(host.read_file(FILE)) == {"schema": 1, **WEBHOOK}
    assert host.run(["stat", "-c", "%a %U", FILE]).stdout.split() == ["600", "root"]
    assert set_up(host, project, WEBHOOK).changed == 0
    assert set_up(host, project, {"webhook": WEBHOOK["webhook"] + "2"}).changed == 1
    host.run(["chmod", "644", FILE])
    assert playbook.would_change(host, project=project) == [f"Notifier | Put {FILE} (mode 644, owner root)"]
    assert playbook.would_change(host) == [f"Notifier | Remove {FILE} (no longer used)"]
    assert deploy(host).changed == 1
    assert host.run(["test", "-e", FILE], check=False).returncode == 1
    assert (main_pid(host), host.run(["readlink", "/var/lib/sglang/active"]).stdout) == (pid, active)


def test_the_webhooks_url_is_in_one_file_and_in_no_command_line_output_or_journal(
    host: Host, project: Path, receiver: None
) -> None:
    host.write_file("/root/pattern", SECRET, mode="600")
    host.run(["systemd-run", "--unit=watch", "sh", "-c", WATCH])
    runs = [set_up(host, project, WEBHOOK, "--diff", "-vv")]
    host.run(["sglang-box", "notify", "--test"])
    host.run(["rm", FILE])
    listing = playbook.pyinfra("deploy.py", "--debug-operations", "--limit", host.name, project=project)
    assert f"Put {FILE} (missing)" in listing.text
    runs.append(set_up(host, project, WEBHOOK))
    host.shell("sleep 0.2; systemctl stop watch; rm /root/pattern", check=True)
    assert host.shell("cat /root/seen").stdout == "", "seen in a command line"
    assert all(SECRET not in text for run in [*runs, listing] for text in (run.text, str(run.report)))
    folders = "/etc /opt/sglang/hostkit /var/lib/sglang /run/sglang /tmp /var/tmp /root /home"
    assert host.shell(f"grep -rlF {SECRET} {folders} 2>/dev/null").stdout.split() == [FILE]
    readers = "journalctl --no-pager -o export; journalctl --namespace=sglang --no-pager -o export"
    text = host.run(["sh", "-c", f"{{ {readers}; }} | LC_ALL=C tr -cd '[:print:]\\n'"]).stdout
    assert "test: told the webhook at 127.0.0.1" in text
    assert SECRET not in text


def test_a_test_message_takes_the_way_of_a_real_one(host: Host, project: Path, receiver: None) -> None:
    set_up(host, project, WEBHOOK)
    done = host.run(["sglang-box", "notify", "--test"])
    told = f"told the webhook at 127.0.0.1 (HTTP 200): test from {host.name}: nothing failed"
    assert done.stdout == f"test: {told}\n"
    message = received(host)
    assert (message["schema"], message["host"], message["unit"], message["profile"]) == (
        1,
        host.name,
        "test",
        "sandbox",
    )


def test_a_webhook_that_nobody_serves_fails_the_test_in_one_line(host: Host, project: Path) -> None:
    set_up(host, project, WEBHOOK)
    done = host.run(["sglang-box", "notify", "--test"], check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("test: nobody was told, the webhook at 127.0.0.1 did not take it, 3 tries: ")
    assert len(done.stdout.splitlines()) == 1
    assert "sglang-notify" not in host.run(["systemctl", "--failed", "--plain"]).stdout


def test_a_unit_that_comes_to_its_start_limit_is_told_with_its_cause(host: Host, project: Path, receiver: None) -> None:
    set_up(host, project, WEBHOOK)
    host.write_file("/run/systemd/system/fails.service", FAILS)
    host.run(["systemctl", "daemon-reload"])
    began = time.time()
    try:
        host.run(["systemctl", "start", "fails"])
        message = received(host)
    finally:
        host.shell("rm /run/systemd/system/fails.service; systemctl reset-failed fails; systemctl daemon-reload")
    assert (message["unit"], message["cause"]) == ("fails.service", "ValueError: no such thing")
    assert message["result"] in ("start-limit-hit", "exit-code")
    assert message["restarts"] >= 1
    assert began - 1 <= time.mktime(time.strptime(message["since"][:19], "%Y-%m-%dT%H:%M:%S")) <= time.time() + 1
    assert message["release"] == host.run(["readlink", "/var/lib/sglang/active"]).stdout.strip().rpartition("/")[2]
    assert message["text"].startswith(f"fails.service on {host.name} failed and stays down (")
    assert message["text"].endswith("exit status 3): ValueError: no such thing")


def test_the_servers_unit_names_the_notifier_and_systemd_finds_no_fault_in_it(host: Host) -> None:
    assert playbook.unit(host, "OnFailure") == ["sglang-notify@sglang-server.service.service"]
    done = host.run(["systemd-analyze", "verify", "sglang-notify@sglang-server.service.service"], check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = host.run(["systemd-analyze", "security", "--no-pager", "sglang-notify@x.service"]).stdout
    exposure = float(text.rpartition("Overall exposure level for sglang-notify@x.service: ")[2].split()[0])
    assert exposure < 5.0


def test_a_command_gets_the_message_of_the_servers_unit(host: Host, project: Path) -> None:
    """Started by hand: the unit runs, and the message says so."""
    script = 'cat >/run/told; test "$NOTIFY_UNIT" = sglang-server.service'
    set_up(host, project, {"command": ["/bin/sh", "-c", script]})
    host.shell("systemctl start sglang-notify@sglang-server.service.service", check=True)
    message = received(host, "/run/told")
    assert (message["unit"], message["restarts"], message["profile"]) == ("sglang-server.service", 0, "sandbox")
    assert message["text"].startswith(f"sglang-server.service on {host.name} failed before and is active now")
    assert journal_of_the_notifier(host).startswith("sglang-server.service: told /bin/sh: sglang-server.service on")


def test_a_command_that_fails_leaves_a_failed_notifier_that_says_why(host: Host, project: Path) -> None:
    set_up(host, project, {"command": ["/bin/sh", "-c", "echo no route to the pager; exit 3"]})
    done = host.run(["systemctl", "start", "sglang-notify@x.service"], check=False)
    assert done.returncode != 0
    assert journal_of_the_notifier(host).startswith(
        "x: nobody was told, /bin/sh ended with 3: no route to the pager: x on"
    )
    host.run(["systemctl", "reset-failed", "sglang-notify@x.service"])


def test_where_nobody_is_to_be_told_that_is_said(host: Host) -> None:
    done = host.run(["sglang-box", "notify", "--test"], check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "nobody is to be told: set `notify` in group_data/all.py and deploy\n",
    )
    host.run(["systemctl", "start", "sglang-notify@x.service"])
    assert journal_of_the_notifier(host) == "x: nobody is told, `notify` in group_data/all.py is None"


def test_a_wrong_setting_is_refused_before_the_first_change_in_a_line_without_it(host: Host, project: Path) -> None:
    (project / "group_data/sandbox.py").write_text(
        f'profile = "sandbox"\nnotify = {{"webhok": "https://x/{SECRET}"}}\n'
    )
    run = deploy(host, project=project)
    assert run.code != 0
    assert len(run.lines_with("group_data: notify: is neither a webhook nor a command; write")) == 1, run.text
    assert SECRET not in run.text
