"""The scheduler's lines: one for each prefill, one for every decode_log_interval steps of decoding."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sandbox.simulated.engine import resolved
from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.log import log


class BatchLog:
    """Counts steps and tokens between two lines."""

    def __init__(self, arguments: Mapping[str, Any], faults: Faults) -> None:
        self._capacity = resolved.max_total_tokens(arguments)
        self._interval = int(arguments["decode_log_interval"])
        self._label = "cpu graph" if arguments["device"] == "cpu" else "cuda graph"
        self._prefill_sizes = resolved.graph_sizes(arguments, "prefill")
        self._sizes = [] if "no-cuda-graph" in faults else resolved.graph_sizes(arguments, "decode")
        self._tokens_per_s = faults.tokens_per_s
        self._steps, self._made, self._since = 0, 0, time.monotonic()

    def prefill(self, fresh: int, tokens: int, *, running: int, waiting: int, used: int) -> None:
        graph = 1 < tokens <= max(self._prefill_sizes, default=0)
        log(
            f"Prefill batch, #new-seq: {fresh}, #new-token: {tokens}, #cached-token: 0, "
            f"token usage: {used / self._capacity:.2f}, #running-req: {running}, #queue-req: {waiting}, "
            f"#pending-token: 0, {self._label}: {graph}, input throughput (token/s): {tokens * self._tokens_per_s:.2f}"
        )

    def decode(self, running: int, *, waiting: int, used: int) -> None:
        """Count one step. A batch larger than the largest captured graph runs without."""
        self._steps += 1
        self._made += running
        if self._steps % self._interval:
            return
        now = time.monotonic()
        log(
            f"Decode batch, #running-req: {running}, #token: {used}, token usage: {used / self._capacity:.2f}, "
            f"{self._label}: {running <= max(self._sizes, default=0)}, "
            f"gen throughput (token/s): {self._made / (now - self._since):.2f}, #queue-req: {waiting}"
        )
        self._made, self._since = 0, now
