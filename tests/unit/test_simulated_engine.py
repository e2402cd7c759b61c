"""The simulated engine without a fault, held against captures of the real SGLang 0.5.23."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hostkit import client, journal
from tests.playbook import ROOT
from tests.simulated import FOLDER, Engine, command, cpu_s, engine

GPU = ROOT / "tests/data/gpu-0.5.23"
CPU = ROOT / "tests/data/cpu-0.5.23"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One server as the captured GPU start was made, which the tests only ask."""
    words = ("--enable-metrics", "--max-running-requests", "4", "--cuda-graph-max-bs-decode", "2")
    with engine(tmp_path_factory.mktemp("served"), *words) as one:
        one.wait_for("Uvicorn running")
        assert one.json("/v1/models")["data"][0]["id"] == "tiny", "answers before the server is ready"
        assert one.health() == 503
        yield one.wait_until_healthy()


def stages(log: str) -> list[str]:
    """Names of the stages that the ladder reads in a log, each once, in their order."""
    found = [journal.stage_of(line) for line in journal.message_lines(log)]
    return list(dict.fromkeys(stage.name for stage in found if stage))


def stream(text: str) -> list[dict[str, Any]]:
    return [json.loads(data) for data in re.findall(r"^data: (\{.*\})$", text, re.MULTILINE)]


def shape(value: Any) -> Any:
    """Keys and kinds of a JSON value, whatever it says."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def curl(one: Engine, path: str, *words: str) -> str:
    url = f"http://127.0.0.1:{one.port}{path}"
    return subprocess.run(["curl", "-sS", "-m", "10", url, *words], capture_output=True, text=True, check=True).stdout


def test_its_stages_are_those_of_a_start_on_a_gpu(served: Engine) -> None:
    real = stages((GPU / "server.log").read_text())
    assert real[-1] == "fired up"
    assert stages(served.log) == real


def test_a_log_line_of_each_kind_reads_as_the_real_one(served: Engine) -> None:
    served.ask("talk", max_tokens=20)

    def kinds(log: str) -> set[str]:
        lines = (re.sub(r"\d[\d.:-]*|True|False|\[.*?\]|\w+\.bfloat16", "#", line) for line in log.splitlines())
        wanted = ("Decode batch", "Prefill batch", "Load weight", "KV Cache", "Engine startup", "INFO:     1")
        return {line for line in lines if any(part in line for part in wanted) and "health" not in line}

    real = kinds((GPU / "server.log").read_text())
    ours = {line for line in kinds(served.log) if "/v1/models" not in line}
    assert ours <= real, ours - real


def test_a_start_takes_less_than_a_second_of_computing(tmp_path: Path) -> None:
    with engine(tmp_path) as one:
        one.wait_until_healthy()
        assert cpu_s(one.process.pid) < 1


def test_server_info_has_every_argument_of_the_real_one_with_its_type(served: Engine) -> None:
    kinds = json.loads((GPU / "server_args.json").read_text())
    real = {name: kind for kind, names in kinds.items() for name in names}
    info = served.json("/server_info")
    assert real.keys() <= info.keys()
    given = {"max_running_requests": "int"}  # null in the capture
    wrong = {
        name: (kind, type(info[name]).__name__)
        for name, kind in {**real, **given}.items()
        if type(info[name]).__name__ != kind.replace("null", "NoneType")
    }
    assert wrong == {}


def test_server_info_says_the_rest_as_the_captured_one(served: Engine) -> None:
    real = json.loads((CPU / "server_info.json").read_text())
    info = served.json("/server_info")
    assert real.keys() <= info.keys()
    assert shape(info["startup_time"]) == shape(real["startup_time"])
    assert shape(info["internal_states"][0]["memory_usage"]) == shape(real["internal_states"][0]["memory_usage"])
    assert (info["max_running_requests"], info["tp_size"], info["version"]) == (4, 1, "0.5.23")
    assert info["launch_command"].endswith("--cuda-graph-max-bs-decode 2")


def test_models_and_a_stream_have_the_captured_shape(served: Engine) -> None:
    assert shape(served.json("/v1/models")) == shape(json.loads((CPU / "models.json").read_text()))
    question = [{"role": "user", "content": "What is 2+2? Answer with the number only."}]
    body = {"messages": question, "model": "tiny", "stream": True, "stream_options": {"include_usage": True}}
    real = (CPU / "chat_stream.txt").read_text()
    ours = curl(served, "/v1/chat/completions", "-d", json.dumps(body))
    assert [shape(chunk) for chunk in stream(ours)] == [shape(chunk) for chunk in stream(real)]
    assert ours.endswith("data: [DONE]\n\n")
    assert stream(ours)[-1]["usage"]["completion_tokens"] == stream(real)[-1]["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 2+2? Answer with the number only.", "4"),
        ("What is 17 * 3? Answer with the number only.", "51"),
        ("Reply with the single word: pong", "pong"),
        ("Repeat exactly: 9f-a2b7c", "9f-a2b7c"),
    ],
)
def test_it_knows_the_answers_that_the_ladder_asks_for(served: Engine, question: str, answer: str) -> None:
    assert served.ask(question).text == answer


def test_it_talks_on_up_to_max_tokens_and_the_same_each_time(served: Engine) -> None:
    one, other = served.ask("Tell me something", max_tokens=40), served.ask("Tell me something", max_tokens=40)
    assert (one.text, one.tokens) == (other.text, 40)


def test_ignore_eos_goes_on_after_the_answer(served: Engine) -> None:
    body = {"messages": [{"role": "user", "content": "2+2"}], "max_tokens": 12, "ignore_eos": True}
    whole = json.loads(curl(served, "/v1/chat/completions", "-d", json.dumps(body)))
    assert whole["choices"][0]["message"]["content"].startswith("4 the")
    assert (whole["choices"][0]["finish_reason"], whole["usage"]["completion_tokens"]) == ("length", 12)


def test_a_prompt_that_does_not_fit_is_refused_as_the_real_one_does(served: Engine) -> None:
    body = {"messages": [{"role": "user", "content": "1"}], "max_tokens": 5000}
    refused = json.loads(curl(served, "/v1/chat/completions", "-d", json.dumps(body)))
    assert refused["message"].startswith("Requested token count exceeds the model's maximum context length of 2048")
    assert (refused["type"], refused["code"]) == ("BadRequestError", 400)


def test_no_more_run_at_once_than_allowed_and_graphs_end_at_their_largest_batch(served: Engine) -> None:
    served.ask_at_once(["talk"] * 6, max_tokens=200)
    served.ask("talk", max_tokens=20)
    running = {
        (int(number), graph)
        for number, graph in re.findall(r"Decode batch, #running-req: (\d+).*cuda graph: (\w+)", served.log)
    }
    assert max(running) == (4, "False")
    assert (1, "True") in running


def test_metrics_name_what_dashboards_read(served: Engine) -> None:
    text = curl(served, "/metrics")
    assert re.search(r'^sglang:num_running_reqs\{.*model_name="tiny".*\} 0\.0$', text, re.MULTILINE)


def test_its_processes_are_named_as_the_real_ones(served: Engine) -> None:
    assert set(served.children()) == {"sglang::schedul", "sglang::detoken"}


def test_tensor_parallel_ranks_are_processes_of_their_own(tmp_path: Path) -> None:
    with engine(tmp_path, "--tp", "4") as one:
        one.wait_until_healthy()
        children = Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children").read_text().split()
        assert len(children) == 5
        assert one.log.count("Load weight end") == 4
        assert " TP3] Load weight begin" in one.log


@pytest.mark.parametrize("word", ["--no-such-flag", "--disagg", "--tp-size=two", "--schedule-policy=none"])
def test_what_the_real_parser_refuses_ends_with_its_status(tmp_path: Path, word: str) -> None:
    with engine(tmp_path, word) as one:
        assert one.wait_for_end() == 2
        assert "sglang serve: error:" in one.log


def test_an_api_key_in_the_configuration_file_is_wanted_from_all_but_probes(tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text('api-key: "s3cret"\n')
    with engine(tmp_path, "--config", str(tmp_path / "engine.yaml")) as one:
        one.wait_until_healthy()
        assert client.status(one.server, "/v1/models", 5) == 401
        with_key = client.Server(one.server.base, "s3cret")
        assert client.chat(with_key, "tiny", "1+1", 5).text == "2"


def test_a_running_answer_is_whole_before_sigterm_ends_the_server(tmp_path: Path) -> None:
    with engine(tmp_path, fault="slow:40") as one, ThreadPoolExecutor() as pool:
        one.wait_until_healthy()
        asked = pool.submit(one.ask, "talk", max_tokens=20)
        one.wait_for('"POST /v1/chat/completions HTTP/1.1" 200')
        one.process.terminate()
        one.wait_for("Remaining number of requests 1.")
        assert asked.result().tokens == 20
        assert one.wait_for_end() == 0
    assert ending(one.log) == ending((GPU / "server.log").read_text())


def ending(log: str) -> list[str]:
    """The lines from the end of the drain, without their numbers."""
    return re.sub(r"\d+", "#", log[log.index("Remaining number of requests 0") :]).splitlines()


def test_a_signal_to_the_whole_group_is_taken_for_a_crash_as_by_the_real_one(tmp_path: Path) -> None:
    with engine(tmp_path) as one:
        one.wait_until_healthy()
        os.killpg(one.process.pid, signal.SIGTERM)
        assert one.wait_for_end() == -signal.SIGKILL
        assert "crashed with exit code -15. Triggering SIGQUIT for cleanup..." in one.log


def test_the_death_of_a_scheduler_ends_the_server(tmp_path: Path) -> None:
    with engine(tmp_path) as one:
        one.wait_until_healthy()
        os.kill(one.children()["sglang::schedul"], signal.SIGKILL)
        assert one.wait_for_end() == -signal.SIGKILL
        assert re.search(r"Subprocess scheduler_0 \(pid=\d+\) crashed with exit code -9", one.log)


def test_a_taken_port_is_told_after_loading_and_the_server_neither_serves_nor_ends(
    served: Engine, tmp_path: Path
) -> None:
    with engine(tmp_path, port=served.port) as other:
        other.wait_for("Waiting for application shutdown")
        assert stages(other.log)[-1] == "warming up"
        line = next(line for line in other.log.splitlines() if "Errno" in line)
        assert line.endswith(
            f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {served.port}): address already in use"
        )
        assert journal.is_fatal(line)
        other.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            other.process.wait(0.3)


def test_other_processes_with_its_folder_on_their_path_see_the_real_packages() -> None:
    code = "import importlib.util, http.server; print(importlib.util.find_spec('sglang'))"
    seen = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(FOLDER)}, capture_output=True, text=True, check=True
    )
    assert seen.stdout == "None\n"
    assert command()[1:3] == ["-m", "sglang.launch_server"]
