"""Eviction ends what was seen and nothing else: not a reused pid, not a process that changed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostkit import ending, evict, evicted, gates, paths, processes, unmanaged
from hostkit.events import OK, STOPPED, Progress, Result
from hostkit.owner import Owner
from hostkit.unmanaged import Server
from tests.unit.test_identify import engine, running

__all__ = ["engine"]  # a fixture

SEEN = Server(
    pid=4242,
    start_ticks=1000,
    pids=[(4242, 1000)],
    user="ana",
    age_s=60,
    command="python -m sglang.launch_server",
    kind="sglang server",
    gpus={"0000:01:00.0": 61440},
    ports=[30000],
    owner=Owner("session", "session-3.scope"),
)


def test_what_was_seen_is_the_same_when_only_its_age_and_memory_changed() -> None:
    assert evict.is_same(replace(SEEN, age_s=90, gpus={"0000:01:00.0": 70000}), SEEN.as_json())


CHANGES: dict[str, dict[str, Any]] = {
    "another start: the pid was reused": {"start_ticks": 1001},
    "another command": {"command": "python -m sglang.launch_server --tp 2"},
    "another kind": {"kind": "sglang router"},
    "other GPUs and ports": {"gpus": {"0000:02:00.0": 1}, "ports": [30001]},
    "neither GPU nor port any more": {"gpus": {}, "ports": []},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_not_the_same(change: str) -> None:
    assert not evict.is_same(replace(SEEN, **CHANGES[change]), SEEN.as_json())


def test_a_process_of_another_start_time_is_left_alone() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        ticks = processes.start_ticks(process.pid)
        ending.end([(process.pid, ticks - 1)], within_s=0.1)
        assert process.poll() is None
        ending.end([(process.pid, ticks)], within_s=5)
        assert process.wait(5) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_what_does_not_heed_term_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    with running(sys.executable, "-c", code) as pid:
        began = time.monotonic()
        ending.end([(pid, processes.start_ticks(pid))], within_s=0.3)
        assert 0.3 <= time.monotonic() - began < 5
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_pid_that_is_gone_is_no_error() -> None:
    ending.end([(2**22 + 1, 5)], within_s=0.1)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "EVICTED", tmp_path / "evicted")
    return tmp_path / "evicted"


def seen(pid: int) -> Server:
    """The server, as if it held a card."""
    [server] = [one for one in unmanaged.find([], [], []) if one.pid == pid]
    return replace(server, gpus={"0000:01:00.0": 1}, owner=Owner("none", ""))


def test_argv_folder_and_environment_are_kept_for_root_alone(kept: Path, engine: str) -> None:
    with running(sys.executable, "-m", "sglang.launch_server", "two words", PYTHONPATH=engine, TOKEN="s3 'cret") as pid:
        start = evicted.keep(seen(pid))
    [record] = [json.loads(path.read_text()) for path in kept.glob("*.json")]
    [script] = kept.glob("*.sh")
    assert start == f"bash {script}"
    assert record["argv"][1:] == ["-m", "sglang.launch_server", "two words"]
    assert (record["cwd"], record["environment"]["TOKEN"]) == (str(Path.cwd()), "s3 'cret")
    modes = {path.name.rpartition(".")[2]: path.stat().st_mode & 0o777 for path in [kept, *kept.iterdir()]}
    assert modes == {"evicted": 0o700, "json": 0o600, "sh": 0o700}
    assert "s3 'cret" not in "".join(evicted.lines()), "the console shows no environment"
    assert start in "".join(evicted.lines())


def test_the_kept_command_starts_the_same_again(kept: Path, engine: str) -> None:
    """With its own environment alone, and in its own folder."""
    with running(sys.executable, "-m", "sglang.launch_server", PYTHONPATH=engine, TOKEN="s3 'cret") as pid:
        start = evicted.keep(seen(pid))
    with running(*start.split(), OTHER="1") as pid:
        found = processes.environment(pid)
        assert (found["TOKEN"], found.get("OTHER")) == ("s3 'cret", None)
        assert [one.pid for one in unmanaged.find([], [], []) if one.pid == pid] == [pid]


def test_an_eviction_says_how_to_start_it_again_and_only_where_it_matters(
    kept: Path, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(sys.executable, "-m", "sglang.launch_server", PYTHONPATH=engine) as pid:
        server = seen(pid)
        monkeypatch.setattr(unmanaged, "find", lambda *_, **__: [server])
        monkeypatch.setattr(evict, "_RESPAWN_S", 0.0)
        [verdict] = evict.evict([server.as_json()], Progress(tmp_path), within_s=5)
        assert os.waitpid(pid, 0)[0] == pid
    assert "started again by: bash " in verdict.evidence
    targets = [server.as_json()]
    assert "started again by: bash " in evict.told(Result(STOPPED, "stopped"), targets).message
    assert evict.told(Result(OK, "serves"), targets).message == "serves"
    assert evict.told(Result(STOPPED, "stopped"), []).message == "stopped"


def test_a_reused_pid_is_left_alone_and_said_so(tmp_path: Path, engine: str) -> None:
    with running(sys.executable, "-m", "sglang.launch_server", PYTHONPATH=engine) as pid:
        target = replace(seen(pid), start_ticks=1).as_json()
        [verdict] = evict.evict([target], Progress(tmp_path), within_s=0.1)
        assert verdict.evidence == f"pid {pid} is no longer what was seen: left alone"
        assert evict.leaving([target]) == frozenset()
        os.kill(pid, 0)


def test_an_owner_that_is_not_to_be_stopped_stops_the_eviction(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = replace(SEEN, owner=Owner("container", "pod", reason="it runs in a pod"))
    monkeypatch.setattr(unmanaged, "find", lambda *_, **__: [server])
    with pytest.raises(gates.NotMet, match="cannot be evicted: it runs in a pod; stop it yourself"):
        evict.evict([server.as_json()], Progress(tmp_path))
    assert not kept.exists()
    assert evict.leaving([server.as_json()]) == frozenset()
