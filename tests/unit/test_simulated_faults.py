"""Every fault of the simulated engine, by what it shows outside."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from hostkit import client, journal
from sandbox.gpu.holders import SOCKETS
from sandbox.simulated.engine.faults import FAULTS, Faults
from tests.simulated import cpu_s, engine, free_port, until


def test_every_fault_of_the_table_has_a_test() -> None:
    text = Path(__file__).read_text()
    assert [name for name in FAULTS if not re.search(rf'[",]{name}[":,]', text)] == []


def test_exit_ends_at_once_with_its_status(tmp_path: Path) -> None:
    with engine(tmp_path, fault="exit:3") as one:
        assert one.wait_for_end() == 3


@pytest.mark.parametrize(("fault", "told"), [("die-loading", "CUDA out of memory"), ("die-capturing", "Capture cuda")])
def test_out_of_memory_while_starting_ends_the_tree_by_sigkill(tmp_path: Path, fault: str, told: str) -> None:
    with engine(tmp_path, fault=fault) as one:
        assert one.wait_for_end() == -signal.SIGKILL
        lines = one.log.splitlines()
        assert any(journal.is_fatal(line) for line in lines)
        assert told in journal.cause(lines)
        assert "torch.OutOfMemoryError" in one.log
        assert "Received sigquit from a child process" in one.log


def test_slow_load_shows_its_percentages_and_works_all_the_while(tmp_path: Path) -> None:
    with engine(tmp_path, fault="slow-load:1") as one:
        one.wait_for("50% Completed")
        assert one.health() is None
        assert cpu_s(one.children()["sglang::schedul"]) > 0
        one.wait_until_healthy()


def test_stuck_loading_stays_where_it_is_without_cpu_time(tmp_path: Path) -> None:
    with engine(tmp_path, fault="stuck-loading") as one:
        one.wait_for("Load weight begin")
        scheduler = one.children()["sglang::schedul"]
        before = cpu_s(scheduler)
        time.sleep(0.3)
        assert (one.process.poll(), cpu_s(scheduler) - before) == (None, 0)
        assert one.log.splitlines()[-1].endswith("Load weight begin. avail mem=94.97 GB")


def test_die_after_ready_ends_a_server_that_served(tmp_path: Path) -> None:
    with engine(tmp_path, fault="die-after-ready:0.5") as one:
        one.wait_until_healthy()
        assert one.wait_for_end() == -signal.SIGKILL
        assert "Scheduler hit an exception: Traceback" in one.log


def test_die_at_request_answers_those_before(tmp_path: Path) -> None:
    with engine(tmp_path, fault="die-at-request:2") as one:
        one.wait_until_healthy()
        assert one.ask("1+1").text == "2"
        with pytest.raises(client.WrongAnswer):
            one.ask("1+1")
        assert one.wait_for_end() == -signal.SIGKILL


def test_wedge_after_leaves_a_server_that_accepts_and_never_answers(tmp_path: Path) -> None:
    with engine(tmp_path, fault="wedge-after:1", SGLANG_HEALTH_CHECK_TIMEOUT="0.3") as one:
        one.wait_until_healthy()
        assert one.ask("1+1").text == "2"
        with pytest.raises(client.WrongAnswer):
            one.ask("1+1", within_s=0.3)
        assert one.health() == 503
        assert "Health check failed. Server couldn't get a response from detokenizer" in one.log
        one.process.terminate()
        assert one.wait_for_end() == 0, "one whose /health failed does not wait for its requests"


def test_no_tokens_is_healthy_and_answers_nobody(tmp_path: Path) -> None:
    with engine(tmp_path, fault="no-tokens") as one:
        one.wait_until_healthy()
        with pytest.raises(client.WrongAnswer):
            one.ask("1+1", within_s=0.3)
        assert one.health() == 200
        one.process.terminate()
        assert one.wait_for_end() == 0, "the client that went away is no running request any more"


@pytest.mark.parametrize(("fault", "answer"), [("empty-answers", ""), ("nan", "!" * 64), ("repeat-token", " the" * 64)])
def test_answers_that_are_no_answers(tmp_path: Path, fault: str, answer: str) -> None:
    with engine(tmp_path, fault=fault) as one:
        assert one.wait_until_healthy().ask("1+1").text == answer


def test_garbage_is_the_same_for_the_same_question(tmp_path: Path) -> None:
    with engine(tmp_path, fault="garbage") as one:
        text = one.wait_until_healthy().ask("1+1").text
        assert text == one.ask("1+1").text
        assert len(text) == 3 * 64


def test_corrupt_concurrent_shows_only_under_concurrency(tmp_path: Path) -> None:
    with engine(tmp_path, fault="corrupt-concurrent", file={"tokens_per_s": 50}) as one:
        one.wait_until_healthy()
        echoed = "0123456789abcdef0123456789abcdef"
        assert one.ask(f"Repeat exactly: {echoed}").text == echoed
        answers = one.ask_at_once([f"Repeat exactly: {echoed}"] * 4)
        assert echoed not in answers
        assert {len(answer) for answer in answers} == {len(echoed)}


def test_what_the_server_says_of_itself_may_be_wrong(tmp_path: Path) -> None:
    with engine(tmp_path, "--tp-size", "2", fault="wrong-model:other,wrong-argument:tp_size=1") as one:
        one.wait_until_healthy()
        assert one.json("/v1/models")["data"][0]["id"] == "other"
        assert one.json("/server_info")["tp_size"] == 1


def test_no_cuda_graph_shows_in_the_decode_lines_alone(tmp_path: Path) -> None:
    with engine(tmp_path, fault="no-cuda-graph") as one:
        one.wait_until_healthy().ask("talk", max_tokens=30)
        one.wait_for("Decode batch")
        decode = [line for line in one.log.splitlines() if "Decode batch" in line]
        assert all("cuda graph: False" in line for line in decode)
        assert "Capture target decode CUDA graph end" in one.log


def test_slow_is_as_slow_as_it_says(tmp_path: Path) -> None:
    with engine(tmp_path, fault="slow:40") as one:
        answer = one.wait_until_healthy().ask("talk", max_tokens=20)
        assert 15 < answer.tokens / answer.total_s <= 41


def test_ignore_sigterm_goes_on(tmp_path: Path) -> None:
    with engine(tmp_path, fault="ignore-sigterm") as one:
        one.wait_until_healthy()
        os.killpg(one.process.pid, signal.SIGTERM)
        assert one.ask("1+1").text == "2"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_orphan_scheduler_outlives_its_main_process_and_holds_its_memory(tmp_path: Path, sent: signal.Signals) -> None:
    with engine(tmp_path, fault="orphan-scheduler", SANDBOX_GPU_CLAIM="0000:01:00.0/1234") as one:
        one.wait_until_healthy()
        scheduler = one.children()["sglang::schedul"]
        assert claims(scheduler) == ["01:00.0/1234"]
        one.process.send_signal(sent)
        assert one.wait_for_end() == -sent
        status = Path(f"/proc/{scheduler}/status").read_text()
        assert f"PPid:\t{one.process.pid}" not in status
        os.kill(scheduler, signal.SIGTERM)
        assert claims(scheduler) == ["01:00.0/1234"]


def test_without_the_fault_children_and_memory_are_gone_with_the_main_process(tmp_path: Path) -> None:
    with engine(tmp_path, "--tp-size", "2", SANDBOX_GPU_CLAIM="0000:01:00.0,0000:21:00.0/77") as one:
        one.wait_until_healthy()
        children = Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children").read_text().split()
        assert {where for pid in children for where in claims(pid)} == {"01:00.0/77", "21:00.0/77"}
        one.process.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "no child is left")
        assert not any(claims(pid) for pid in children)


def claims(pid: str | int) -> list[str]:
    """Cards and MiB that a process holds of the GPU stand-in."""
    return re.findall(rf"@sandbox-gpu/{pid}/(\S+)", SOCKETS.read_text())


def test_a_fault_in_the_file_may_mean_one_release_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text('{"fault": "slow:5", "when": {"max_running_requests": 8}, "tokens_per_s": 100}')
    monkeypatch.setenv("SANDBOX_ENGINE", str(file))
    assert Faults.load({"max_running_requests": 8}).tokens_per_s == 5
    assert Faults.load({"max_running_requests": 16}).tokens_per_s == 100


def test_an_unknown_fault_is_an_error_and_not_a_test_that_passes_in_vain(tmp_path: Path) -> None:
    with engine(tmp_path, fault="typo", port=free_port()) as one:
        assert one.wait_for_end() == 1
        assert "unknown faults ['typo']" in one.log
