"""Who is told when a server fails: the setting, its file on the host, and what the one who is told gets."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from hostkit import telling
from serving import drift
from serving.problems import Refused
from serving.secret import Notify
from tests.unit import worlds

URL = "https://hooks.example.org/services/T0PSECRET"
MESSAGE = {"schema": 1, "unit": "sglang-server.service", "release": None, "text": "it failed"}


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ({"webhook": "hooks.example.org/T0PSECRET"}, "the webhook is no URL of the form https://host/path"),
        ({"webhook": f"{URL} "}, "the webhook is no URL"),
        ({"webhook": "file:///T0PSECRET"}, "the webhook is no URL"),
        ({"webook": URL}, "is neither a webhook nor a command"),
        ({"webhook": URL, "command": ["/bin/true"]}, "is neither a webhook nor a command"),
        (URL, "is neither a webhook nor a command"),
        ({"command": []}, "is neither a webhook nor a command"),
        ({"command": ["/bin/mail", 5]}, "is neither a webhook nor a command"),
        ({"command": ["mail", "T0PSECRET"]}, "the command does not begin with an absolute path"),
    ],
)
def test_a_wrong_setting_is_one_line_that_does_not_show_it(setting: Any, what: str) -> None:
    with pytest.raises(Refused) as refusal:
        worlds.site(notify=setting)
    [problem] = refusal.value.problems
    assert str(problem).startswith(f"group_data: notify: {what}")
    assert "write {" in str(problem)
    assert "T0PSECRET" not in str(refusal.value)


@pytest.mark.parametrize("setting", [{"webhook": URL}, {"command": ["/usr/bin/mail", "-s", "down", "ops"]}])
def test_the_host_gets_the_setting_as_it_was_written(setting: dict[str, Any]) -> None:
    wanted = worlds.site(notify=setting).notify
    assert wanted is not None
    assert json.loads(wanted.content()) == {"schema": 1, **setting}


def test_the_setting_shows_in_no_repr_and_changes_no_release() -> None:
    told, untold = worlds.release(notify={"webhook": URL}), worlds.release()
    assert "T0PSECRET" not in repr(told.plan)
    assert (told.digest, told.document, told.gates) == (untold.digest, untold.document, untold.gates)


def test_every_service_that_stays_says_whom_to_start_when_it_fails() -> None:
    release = worlds.release()
    texts = {file.path: file.text for file in release.files}
    for unit in release.plan.units:
        assert "\nOnFailure=sglang-notify@%n.service\n" in texts[f"/etc/systemd/system/{unit.service}"]
    assert "/etc/systemd/system/sglang-notify@.service" in texts


def host_with_file(**changes: Any) -> Any:
    return worlds.host_state(files={Notify.path_on_host: worlds.text_file(mode="600", **changes)})


def test_the_file_on_the_host_is_compared_by_digest_mode_and_owner() -> None:
    setting = {"webhook": URL}
    digest = Notify.of(setting).sha256
    seen = {
        None: host_with_file(sha256=digest),
        "missing": worlds.host_state(),
        "another content": host_with_file(),
        "mode 600, owner ana": host_with_file(sha256=digest, owner="ana"),
    }
    for difference, state in seen.items():
        assert drift.notify_differs(worlds.release(state, notify=setting), state) == difference
    assert drift.notify_differs(worlds.release(host_with_file()), host_with_file()) == "no longer used"
    assert drift.notify_differs(worlds.release(), worlds.host_state()) is None


class Receiver(BaseHTTPRequestHandler):
    """Answers POSTs with the statuses that the server was given, then 200."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.received.append((self.headers["Content-Type"], json.loads(body)))
        self.send_response(server.statuses.pop(0) if server.statuses else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(telling, "PAUSE_S", 0.01)
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        both: Any = server
        both.received, both.statuses = [], []
        both.url = f"http://127.0.0.1:{server.server_port}/T0PSECRET"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield both
        server.shutdown()


def test_a_webhook_gets_the_message_as_json(receiver: Any) -> None:
    assert telling.tell({"webhook": receiver.url}, MESSAGE) == "the webhook at 127.0.0.1 (HTTP 200)"
    assert receiver.received == [("application/json", MESSAGE)]


def test_a_webhook_that_fails_once_is_tried_again(receiver: Any) -> None:
    receiver.statuses = [503]
    telling.tell({"webhook": receiver.url}, MESSAGE)
    assert len(receiver.received) == 2


def test_a_webhook_that_never_takes_it_is_named_by_its_host_alone(receiver: Any) -> None:
    """A redirect counts as a refusal: a client that followed it would get a 200 without having told anybody."""
    receiver.statuses = [302, 302, 302]
    with pytest.raises(telling.NotTold) as problem:
        telling.tell({"webhook": receiver.url}, MESSAGE)
    assert str(problem.value) == "the webhook at 127.0.0.1 did not take it, 3 tries: HTTP 302"
    assert len(receiver.received) == 3


def test_a_webhook_whose_url_cannot_be_sent_is_not_shown(receiver: Any) -> None:
    with pytest.raises(telling.NotTold) as problem:
        telling.tell({"webhook": "http://127.0.0.1:1/T0P SECRET"}, MESSAGE)
    assert "T0P" not in str(problem.value)


def test_a_command_gets_the_message_on_standard_input_and_in_its_environment(tmp_path: Path) -> None:
    script = f'cat >{tmp_path}/input; echo "$NOTIFY_UNIT, $NOTIFY_TEXT, [$NOTIFY_RELEASE]" >{tmp_path}/environment'
    assert telling.tell({"command": ["/bin/sh", "-c", script]}, MESSAGE) == "/bin/sh"
    assert json.loads((tmp_path / "input").read_text()) == MESSAGE
    assert (tmp_path / "environment").read_text() == "sglang-server.service, it failed, []\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/bin/sh", "-c", "echo no route; exit 3"], "/bin/sh ended with 3: no route"),
        (["/nowhere"], "/nowhere could not be run: No such file or directory"),
    ],
)
def test_a_command_that_fails_says_why(command: list[str], why: str) -> None:
    with pytest.raises(telling.NotTold, match=why):
        telling.tell({"command": command}, MESSAGE)
