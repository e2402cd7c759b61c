"""A scheduler's start, as its log tells it: ranks join, weights load, KV cache, graphs."""

from __future__ import annotations

import glob
import hashlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.simulated.engine import resolved
from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.log import log, progress

SHARDS = 10
GIB = 94.97
OUT_OF_MEMORY = (
    f"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of {GIB} GiB of which 1.31 GiB is "
    "free. Including non-PyTorch memory, this process has 93.65 GiB memory in use."
)
CAPTURE_FAILED = f"""\
torch.OutOfMemoryError: {OUT_OF_MEMORY}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py", line 603, in __init__
    raise Exception(
Exception: Capture cuda graph failed: {OUT_OF_MEMORY}
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)
3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose
"""


class SchedulerFailed(Exception):
    """An exception that ends a scheduler; the message is the traceback's last lines."""


def load(arguments: Mapping[str, Any], faults: Faults, is_first_rank: bool) -> None:
    """Take every step and log it. Raises SchedulerFailed where a fault says so."""
    show = progress if is_first_rank else _nothing
    log("Init parallel begin.")
    log("Init parallel ends. elapsed=0.02 s")
    log("Memory baseline taken. mem usage=0.00 GB")
    _weights(arguments, faults, show)
    tokens = resolved.max_total_tokens(arguments)
    log(f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: 34.75 GB, V size: 34.75 GB")
    log(f"Memory pool end. avail mem={GIB - 70:.2f} GB")
    _graphs(arguments, faults, show)
    log(
        f"max_total_num_tokens={tokens}, chunked_prefill_size={arguments['chunked_prefill_size']}, "
        f"max_prefill_tokens={arguments['max_prefill_tokens']}, "
        f"max_running_requests={resolved.max_running_requests(arguments)}, "
        f"context_len={resolved.context_length(arguments)}, "
        f"available_{'cpu' if arguments['device'] == 'cpu' else 'gpu'}_mem={GIB - 72:.2f} GB"
    )


def _weights(arguments: Mapping[str, Any], faults: Faults, show: Callable[..., None]) -> None:
    log(f"Load weight begin. avail mem={GIB:.2f} GB")
    if "stuck-loading" in faults:
        while True:
            signal.pause()
    if "die-loading" in faults:
        raise SchedulerFailed(f"torch.OutOfMemoryError: {OUT_OF_MEMORY}")
    for shard in range(SHARDS + 1):
        show("Multi-thread loading shards", shard, SHARDS, bar=False)
        if shard < SHARDS:
            _read(arguments["model_path"], (faults.number("slow-load") or 0) / SHARDS)
    log(f"Load weight end. elapsed=0.05 s, type=LlamaForCausalLM, avail mem={GIB:.2f} GB, mem usage=0.00 GB.")


def _read(folder: str, seconds: float) -> None:
    """Read the checkpoint from disk and compute with it, as often as the time allows."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for path in glob.glob(os.path.join(folder, "*.safetensors")):
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # or the page cache would answer
                hashlib.file_digest(file, "sha256")
        time.sleep(0.01)


def _graphs(arguments: Mapping[str, Any], faults: Faults, show: Callable[..., None]) -> None:
    prefill, decode = (resolved.graph_sizes(arguments, phase) for phase in ("prefill", "decode"))
    if "die-capturing" in faults and not decode:
        raise ValueError("die-capturing: with these arguments no graph is captured")
    if prefill:
        log(f"Capture target prefill CUDA graph begin. backend=breakable, num_tokens={prefill}, avail mem=24.97 GB")
        _capture("Capturing prefill shape (num_tokens={} avail_mem=24.90 GB)", prefill, show)
        log("Capture target prefill CUDA graph end. elapsed=2.20 s, mem usage=0.12 GB, avail mem=24.85 GB.")
    else:
        log(
            "Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' "
            "(e.g. via --cuda-graph-backend-prefill=disabled or auto-disable rules)."
        )
    if decode:
        log("Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=24.85 GB")
        if "die-capturing" in faults:
            raise SchedulerFailed(CAPTURE_FAILED)
        _capture("Capturing batches (bs={} avail_mem=24.85 GB)", decode, show)
        log(f"Capture target decode CUDA graph end. bs={decode}, elapsed=1.09 s, mem usage=0.00 GB, avail mem=24.8 GB.")


def _capture(label: str, sizes: list[int], show: Callable[..., None]) -> None:
    largest_first = sorted(sizes, reverse=True)
    for done in range(len(sizes) + 1):
        show(label.format(largest_first[min(done, len(sizes) - 1)]), done, len(sizes))


def _nothing(*_: object, **__: object) -> None:
    """Only the first rank draws progress bars."""
