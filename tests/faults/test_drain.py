"""A stop lets the real server finish what it answers."""

import json
import time

import pytest

from sandbox.machine import Host
from tests import playbook
from tests.playbook import ask, deploy, unit

pytestmark = pytest.mark.host

TOKENS = 200
BODY = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": TOKENS,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}


def test_a_request_in_flight_gets_its_whole_answer(host: Host) -> None:
    url, header = f"{playbook.ENTRY}/v1/chat/completions", "content-type: application/json"
    host.write_file("/root/body.json", json.dumps(BODY))
    curl = f"curl -sSN {url} -H '{header}' -d @/root/body.json >/root/answer 2>&1; echo ended $? >>/root/answer"
    host.run(["systemd-run", "--unit=client", "--collect", "sh", "-c", curl])
    host.shell("timeout 30 sh -c 'until grep -q content /root/answer 2>/dev/null; do sleep 0.05; done'", check=True)
    began = time.monotonic()
    host.run(["systemctl", "stop", "sglang-server"], limit_s=60)
    stopped_s = time.monotonic() - began
    host.shell("timeout 30 sh -c 'until grep -q ended /root/answer; do sleep 0.1; done'", check=True)
    lines = host.read_file("/root/answer").split()
    assert lines[-2:] == ["ended", "0"], lines[-5:]
    assert "[DONE]" in lines
    assert f'"completion_tokens":{TOKENS}' in "".join(lines)
    assert unit(host, "ActiveState") == ["inactive"]
    assert stopped_s < 28, "it ended by itself, and was not killed"
    again = deploy(host)
    assert (again.code, ask(host)) == (0, "4"), again.text
