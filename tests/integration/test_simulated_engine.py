"""The simulated engine beside the real one on the same host: what both show of themselves is the same."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostkit import journal
from sandbox.machine import Host
from tests import playbook
from tests.playbook import QUESTION

pytestmark = pytest.mark.host

REAL_PORT, PORT = 30000, 30999
UNIT = "simulated.service"


@dataclass(frozen=True)
class Served:
    """One of the two servers, by its port and its unit."""

    host: Host
    port: int
    unit: str

    def get(self, path: str, *words: str) -> str:
        return self.host.run(["curl", "-sS", "-m", "30", f"http://127.0.0.1:{self.port}{path}", *words]).stdout

    def json(self, path: str) -> Any:
        return json.loads(self.get(path))

    def chat(self, **more: object) -> str:
        body = {"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": QUESTION}], **more}
        header = "content-type: application/json"
        return self.get("/v1/chat/completions", "-H", header, "-d", json.dumps(body))

    def chunks(self) -> list[dict[str, Any]]:
        text = self.chat(stream=True, stream_options={"include_usage": True})
        return [json.loads(data) for data in re.findall(r"^data: (\{.*\})\r?$", text, re.MULTILINE)]

    def argv(self) -> list[str]:
        shown = self.host.run(["systemctl", "show", "--value", "-p", "ExecStart", self.unit]).stdout
        return shlex.split(shown.partition("argv[]=")[2].partition(" ;")[0])

    def titles(self) -> list[str]:
        """What `ps` shows of the unit's processes: the module or the title. Python's own helpers are left out."""
        group = self.host.run(["systemctl", "show", "--value", "-p", "ControlGroup", self.unit]).stdout.strip()
        pids = self.host.read_file(f"/sys/fs/cgroup{group}/cgroup.procs").split()
        lines = self.host.run(["ps", "-o", "args=", "-p", ",".join(pids)]).stdout.splitlines()
        shown = [re.sub(r"^\S*/python\S* -m (\S+).*", r"\1", line).strip() for line in lines]
        return sorted(title for title in shown if "multiprocessing.resource_tracker" not in title)

    def log(self) -> str:
        words = ["journalctl", "--namespace=*", "-u", self.unit, "-o", "json", "--all", "--quiet"]
        invocation = self.host.run(["systemctl", "show", "--value", "-p", "InvocationID", self.unit]).stdout.strip()
        entries = self.host.run([*words, f"_SYSTEMD_INVOCATION_ID={invocation}"]).stdout.splitlines()
        return "\n".join(line for entry in entries for line in journal.message_lines(json.loads(entry)["MESSAGE"]))


@pytest.fixture(scope="module")
def real(served: tuple[Host, playbook.Run]) -> Served:
    host, run = served
    assert run.code == 0, run.text
    return Served(host, REAL_PORT, "sglang-server.service")


@pytest.fixture(scope="module")
def simulated(real: Served) -> Iterator[Served]:
    """Started from the real unit's own command line, with another port, and so with the real engine's Python."""
    argv = real.argv()
    argv[argv.index("--port") + 1] = str(PORT)
    settings = ["--setenv=PYTHONPATH=/opt/sandbox/simulated", "--setenv=SANDBOX_GPU_CLAIM=0000:21:00.0/1000"]
    real.host.run(["systemd-run", "--collect", f"--unit={UNIT}", *settings, *argv])
    wait = f"until curl -sf -m 5 http://127.0.0.1:{PORT}/health; do sleep 0.1; done"
    real.host.run(["timeout", "20", "sh", "-c", wait])
    yield Served(real.host, PORT, UNIT)
    real.host.run(["systemctl", "stop", UNIT])


def kinds(value: Any) -> Any:
    """Keys and types, all the way down; of a list the first entry's."""
    if isinstance(value, dict):
        return {key: kinds(one) for key, one in value.items()}
    return [kinds(one) for one in value[:1]] if isinstance(value, list) else type(value).__name__


def test_both_say_the_same_of_themselves(real: Served, simulated: Served) -> None:
    theirs, ours = real.json("/server_info"), simulated.json("/server_info")
    assert ours.keys() == theirs.keys()
    assert {name: kinds(ours[name]) for name in ours} == {name: kinds(theirs[name]) for name in theirs}
    given = ("tp_size", "max_running_requests", "max_total_tokens", "attention_backend", "device", "served_model_name")
    assert {name: ours[name] for name in given} == {name: theirs[name] for name in given}
    assert kinds(simulated.json("/v1/models")) == kinds(real.json("/v1/models"))


def test_both_answer_in_the_same_shape(real: Served, simulated: Served) -> None:
    assert [kinds(chunk) for chunk in simulated.chunks()] == [kinds(chunk) for chunk in real.chunks()]
    theirs, ours = json.loads(real.chat()), json.loads(simulated.chat())
    assert kinds(ours) == kinds(theirs)
    assert ours["choices"][0]["message"] == theirs["choices"][0]["message"]


def test_both_are_the_same_processes_with_gpu_memory_in_the_scheduler(real: Served, simulated: Served) -> None:
    assert simulated.titles() == real.titles() == ["sglang.launch_server", "sglang::detokenizer", "sglang::scheduler"]
    query = ["nvidia-smi", "--query-compute-apps=process_name,used_memory", "--format=csv,noheader"]
    assert "sglang::scheduler, 1000 MiB" in simulated.host.run(query).stdout


def test_both_logs_tell_the_same_stages_in_the_same_order(real: Served, simulated: Served) -> None:
    def stages(log: str) -> list[str]:
        found = map(journal.stage_of, log.splitlines())
        return list(dict.fromkeys(stage.name for stage in found if stage))

    assert stages(simulated.log()) == stages(real.log())
    assert stages(real.log())[-1] == "fired up"


def test_where_it_is_switched_on_the_engines_own_parser_is_still_the_real_one(simulated: Served) -> None:
    """The check of arguments runs with the unit's environment."""
    request = json.dumps({"package": "sglang", "argv": ["--model-path", "x", "--tp", "4"]})
    parser = "/run/engine_parser.py"
    simulated.host.write_file(parser, (playbook.ROOT / "hostkit/engine_parser.py").read_text())
    switched_on = f"PYTHONPATH=/opt/sandbox/simulated {simulated.argv()[0]}"
    checked = simulated.host.shell(f"echo '{request}' | {switched_on} {parser} check", check=True).stdout
    assert json.loads(checked) == {"ok": True, "message": "", "effective": {"model_path": "x", "tp_size": 4}}
    where = "import importlib.util; print(importlib.util.find_spec('sglang').origin)"
    assert "/site-packages/sglang/" in simulated.host.shell(f'{switched_on} -c "{where}"', check=True).stdout


def test_a_profile_switches_it_on_and_the_playbook_proves_it_like_the_real_one(bare: Host, tmp_path: Path) -> None:
    project = playbook.copy_of_project(tmp_path)
    profile = "extends: sandbox\nenvironment: {PYTHONPATH: /opt/sandbox/simulated}\n"
    (project / "group_data/profiles/simulated.yaml").write_text(profile)
    run = playbook.deploy(bare, "--data", "profile=simulated", project=project)
    assert run.code == 0, run.text
    assert playbook.ask(bare, "What is 6 * 7? Answer with the number only.") == "42", "the tiny model cannot do that"
    assert playbook.deploy(bare, "--data", "profile=simulated", project=project).changed == 0
