"""What the server says of itself: /server_info, /model_info, /v1/models, /metrics. Shapes from captures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from sandbox.simulated.engine import resolved
from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.manager import Manager

VERSION = "0.5.23"
PHASES = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")
STARTUP_TIME = {
    "load_weight": 0.05,
    "kv_cache_allocation": 0.44,
    "scheduler_e2e": 1.99,
    "cuda_graph": dict.fromkeys(PHASES, 0.0),
    "tokenizer_e2e": 11.52,
}
HICACHE: dict[str, Any] = {
    "enabled": False,
    "backend": None,
    "page_size": 1,
    "hicache_object_layout": {"pools": []},
    "reason": "Hierarchical cache is disabled",
}
#: tokens of the context that the scheduler keeps for itself
RESERVED = 6


def startup_timings() -> str:
    graphs = ", ".join(f"{phase}=0.00" for phase in PHASES)
    rest = {name: value for name, value in STARTUP_TIME.items() if name != "cuda_graph"}
    shown = [f"{name}={value}" for name, value in rest.items()]
    return ", ".join([*shown[:-1], f"cuda_graph={{{graphs}}}", shown[-1]])


def models(name: str, context: int) -> dict[str, Any]:
    described = {"object": "model", "created": int(time.time()), "owned_by": "sglang"}
    return {
        "object": "list",
        "data": [{"id": name, **described, "root": name, "parent": None, "max_model_len": context}],
    }


def model_info(arguments: Mapping[str, Any]) -> dict[str, Any]:
    shown = ("model_path", "served_model_name", "tokenizer_path", "preferred_sampling_params", "weight_version")
    more = ("load_format", "reasoning_parser", "tool_call_parser", "disaggregation_mode")
    return {
        **{name: arguments[name] for name in (*shown, *more)},
        "is_generation": True,
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }


def server_info(arguments: Mapping[str, Any], launch_command: str, faults: Faults) -> dict[str, Any]:
    """Every argument in force, what the scheduler made of it, and its state."""
    tokens = resolved.max_total_tokens(arguments)
    return {
        **arguments,
        "launch_command": launch_command,
        "status": "ready",
        "max_total_num_tokens": tokens,
        "max_req_input_len": min(tokens, resolved.context_length(arguments)) - RESERVED,
        "startup_time": STARTUP_TIME,
        "hicache_object_layout": HICACHE,
        "kv_events": None,
        "version": VERSION,
        "frontend": "python",
        "internal_states": [_internal_state(arguments)],
        **_wrong_argument(faults),
    }


def metrics(arguments: Mapping[str, Any], manager: Manager) -> str:
    name = f'engine_type="unified",model_name="{arguments["served_model_name"]}"'
    rank = f'{name},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    made = manager.generated_tokens
    lines = (
        ("num_running_reqs", "gauge", "The number of running requests.", rank, len(manager.running)),
        ("num_queue_reqs", "gauge", "The number of requests in the waiting queue.", rank, 0),
        ("prompt_tokens_total", "counter", "Number of prefill tokens processed.", name, manager.prompt_tokens),
        ("generation_tokens_total", "counter", "Number of generation tokens processed.", name, made),
        ("num_requests_total", "counter", "Number of requests processed.", name, manager.finished_requests),
    )
    return "".join(
        f"# HELP sglang:{metric} {text}\n# TYPE sglang:{metric} {kind}\nsglang:{metric}{{{labels}}} {float(value)}\n"
        for metric, kind, text, labels, value in lines
    )


def _internal_state(arguments: Mapping[str, Any]) -> dict[str, Any]:
    tokens = resolved.max_total_tokens(arguments)
    return {
        **{name: value for name, value in arguments.items() if name != "custom_sigquit_handler"},
        "pp_max_micro_batch_size": resolved.max_running_requests(arguments) // int(arguments["pp_size"]),
        "disaggregation_decode_retraction_backup": "cpu_tensor",
        "startup_time": {name: value for name, value in STARTUP_TIME.items() if name != "tokenizer_e2e"},
        "world_size": int(arguments["tp_size"]) * int(arguments["pp_size"]),
        "effective_max_running_requests_per_dp": resolved.max_running_requests(arguments),
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": 0.003,
            "kvcache": 0.004,
            "startup_available": 20.72,
            "token_capacity": tokens,
            "token_capacity_swa": None,
            "graph": dict.fromkeys(PHASES, 0.0),
        },
        "decode_cuda_graph_bs": resolved.graph_sizes(arguments, "decode"),
        "decode_cuda_graph_memory_gb": 0.0,
    }


def _wrong_argument(faults: Faults) -> dict[str, Any]:
    name, _, value = faults.active.get("wrong-argument", "").partition("=")
    if not name:
        return {}
    try:
        return {name: json.loads(value)}
    except ValueError:  # a plain word
        return {name: value}
