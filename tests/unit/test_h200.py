"""What a real GPU showed (docs/evidence.md), read by the code that reads it on a host."""

import json
from pathlib import Path

import pytest

from hostkit import journal, proofs
from sandbox.gpu.cards import DRIVER_MIB
from serving.schemas import Event, HostState

SEEN = Path(__file__).parent.parent / "data" / "h200-0.5.23"


def lines(name: str) -> list[str]:
    return (SEEN / name).read_text(encoding="utf-8").splitlines()


def test_the_stages_of_a_start_with_cuda_graphs_are_seen_in_order() -> None:
    stages = [stage.name for stage in map(journal.stage_of, lines("first-start.log")) if stage]
    assert list(dict.fromkeys(stages)) == [
        "arguments read",
        "joining ranks",
        "loading weights",
        "weights loaded",
        "KV cache allocated",
        "capturing graphs",
        "graphs captured",
        "warming up",
        "fired up",
    ]


def test_no_line_of_a_start_that_served_is_fatal() -> None:
    assert [line for line in lines("first-start.log") if journal.is_fatal(line)] == []


def test_its_decode_lines_prove_that_cuda_graphs_were_used() -> None:
    rule = {"expect": ["fired up and ready to roll"], "forbid": [], "cuda_graph": True}
    assert "decode lines as they should be" in proofs.log(lines("first-start.log"), rule, largest_graph=32)


def test_the_cause_of_a_start_that_ran_out_of_memory_is_its_exception() -> None:
    dies = lines("dies.log")
    assert journal.cause(dies).startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 229.33 GiB")
    assert any(map(journal.is_fatal, dies))


def test_without_its_last_lines_no_line_is_taken_for_a_cause_that_is_none() -> None:
    """So it was told on the day: the follower was behind, and a harmless line spoke of an error."""
    cut_off = lines("dies.log")[: next(at for at, line in enumerate(lines("dies.log")) if "hit an exception" in line)]
    assert "Ignore import error" not in journal.cause(cut_off)


def test_gpu_memory_was_idle_before_each_start() -> None:
    starts = json.loads((SEEN / "starts.json").read_text())
    assert len(starts) >= 8
    assert [start["mib_before"] for start in starts] == [0.0] * len(starts)


@pytest.mark.parametrize("name", ["first-events.jsonl", "dies-events.jsonl"])
def test_the_events_are_what_the_controller_reads(name: str) -> None:
    events = [Event.model_validate(json.loads(line)) for line in lines(name)]
    assert [event.elapsed_s for event in events] == sorted(event.elapsed_s for event in events)


def test_the_look_is_what_the_controller_reads() -> None:
    state = HostState.from_json(json.loads((SEEN / "inspect.json").read_text()))
    [card], [use] = state.gpus, state.gpu_uses
    assert (card.pci, card.minor, use.process.unit) == ("0000:00:06.0", 0, "sglang-server.service")
    assert card.memory_used_mib - use.used_mib == DRIVER_MIB, "as much as the stand-in takes for the driver"


def test_the_server_reports_the_arguments_that_it_was_given() -> None:
    info = json.loads((SEEN / "server_info.json").read_text())
    assert (info["max_running_requests"], info["served_model_name"], info["tp_size"]) == (32, "tiny", 1)


def test_every_scenario_was_as_it_should_be() -> None:
    assert all(scenario["ok"] for scenario in json.loads((SEEN / "timings.json").read_text()).values())
