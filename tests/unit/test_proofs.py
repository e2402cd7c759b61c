"""What a log proves, and what a server must copy."""

import pytest

from hostkit import proofs

RULE = {"expect": ["fired up"], "forbid": ["Watchdog"], "cuda_graph": True}
DECODE = "[2026-11-30 14:55:20] Decode batch, #running-req: {n}, #token: 1, token usage: 0.00, cuda graph: {graph}, x"
READY = "The server is fired up and ready to roll!"


def decode(running: int, graph: bool) -> str:
    return DECODE.format(n=running, graph=graph)


def test_a_batch_larger_than_the_largest_graph_has_none_by_design() -> None:
    assert "2 decode lines" in proofs.log([READY, decode(16, True), decode(40, False)], RULE, largest_graph=32)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([READY, decode(3, False), decode(16, True)], "decoded without a CUDA graph at 3 running requests"),
        ([READY], "no decode line was logged"),
        ([decode(1, True)], "no line has 'fired up'"),
        ([READY, decode(1, True), "Watchdog timeout"], "'Watchdog timeout'"),
    ],
)
def test_what_is_wrong_in_a_log_is_named(lines: list[str], problem: str) -> None:
    with pytest.raises(proofs.NotProven, match=problem):
        proofs.log(lines, RULE, largest_graph=32)


def test_two_decode_lines_fit_into_the_load() -> None:
    assert proofs.tokens_per_stream({"decode_log_interval": 40}) == 96
    assert proofs.tokens_per_stream({"decode_log_interval": 100}) == 216
    assert proofs.tokens_per_stream({}) == 96
