"""What the arguments come to: the values that /server_info shows and the log begins with.

resolved.json is what the captures of real starts add to the parser's own dests or put in the place of its defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("resolved.json")
# What the driver stand-in's cards would leave for the KV cache of a small model.
DEFAULT_TOKENS = 1_000_000
DECODE_SIZES = (1, 2, 4, 8, 12, 16, *range(24, 257, 8))
PREFILL_SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every argument of the server with the value that is in force."""
    known = json.loads(FILE.read_text())
    defaults = {**known["resolved"], **known[given["device"] or "cuda"]}
    resolved = {**known["extra"], **given}
    resolved.update({name: value for name, value in defaults.items() if given[name] in (None, "auto")})
    resolved["tokenizer_path"] = given["tokenizer_path"] or given["model_path"]
    resolved["served_model_name"] = given["served_model_name"] or given["model_path"]
    resolved["mem_fraction_static"] = given["mem_fraction_static"] or 0.85
    resolved["random_seed"] = given["random_seed"] or 486453928
    resolved["cuda_graph_config"] = given["cuda_graph_config"] or _graphs(resolved)
    # Neither is a field of the real ServerArgs: the second is added by /server_info.
    return {name: value for name, value in resolved.items() if name not in ("config", "launch_command")}


def graph_sizes(resolved: Mapping[str, Any], phase: str) -> list[int]:
    """Return the batch sizes (decode) or numbers of tokens (prefill) captured as graphs, [] without graphs."""
    config = resolved["cuda_graph_config"][phase]
    return [] if config["backend"] == "disabled" else list(config["bs"])


def max_total_tokens(resolved: Mapping[str, Any]) -> int:
    return int(resolved["max_total_tokens"] or DEFAULT_TOKENS)


def max_running_requests(resolved: Mapping[str, Any]) -> int:
    return int(resolved["max_running_requests"] or min(2048, max_total_tokens(resolved) // 2))


def context_length(resolved: Mapping[str, Any]) -> int:
    """Return the argument, else what the checkpoint's config.json says, else 2048 tokens."""
    config = Path(resolved["model_path"]) / "config.json"
    of_model = json.loads(config.read_text()).get("max_position_embeddings", 2048) if config.is_file() else 2048
    return int(resolved["context_length"] or of_model)


def _graphs(resolved: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "decode": _phase(resolved, "decode", "full", DECODE_SIZES, 256),
        "prefill": _phase(resolved, "prefill", "breakable", PREFILL_SIZES, resolved["chunked_prefill_size"]),
    }


def _phase(resolved: Mapping[str, Any], phase: str, backend: str, sizes: tuple[int, ...], most: int) -> dict[str, Any]:
    off = resolved["device"] == "cpu" or resolved["disable_cuda_graph"] or resolved[f"disable_{phase}_cuda_graph"]
    most = resolved[f"cuda_graph_max_bs_{phase}"] or most
    rest = ("max_context_size", "full_prefill_max_req", "full_prefill_prefix_chunk_tokens", "max_seq_len")
    return {
        "backend": "disabled" if off else resolved[f"cuda_graph_backend_{phase}"] or backend,
        "max_bs": most,
        "bs": resolved[f"cuda_graph_bs_{phase}"] or [size for size in sizes if size <= most],
        "tc_compiler": "eager",
        **dict.fromkeys(rest),
    }
