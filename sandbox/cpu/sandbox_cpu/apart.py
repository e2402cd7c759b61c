"""What prefill and decode apart need on a CPU: KV cache in host memory, and CUDA calls that have nothing to wait for.

SANDBOX_NIXL_MEMORY=DRAM  NIXL is told that the cache lies there. SGLang always says VRAM, which UCX refuses where there
                          is no GPU (NIXL_ERR_BACKEND). All else is the real NIXL and the real UCX.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sandbox_cpu.after_import import after_import

VARIABLE = "SANDBOX_NIXL_MEMORY"
_GPU_MEMORY = "VRAM"
# Methods of nixl_agent that are told a kind of memory (nixl 1.5.1).
_TOLD = ("register_memory", "get_reg_descs", "get_xfer_descs", "prep_xfer_dlist", "query_memory")
# Functions of torch that refuse pin_memory=True without a GPU to pin for.
_PIN = ("empty", "zeros", "ones", "full", "tensor", "empty_like", "zeros_like", "arange")


def install() -> None:
    """Prepare both modules for the kind of memory that the variable names; without it, nothing."""
    kind = os.environ.get(VARIABLE)
    if kind:
        after_import("torch", without_a_gpu)
        after_import("nixl_cu13._api", lambda module: in_memory(module, kind))


def in_memory(nixl: ModuleType, kind: str) -> None:
    """Have every agent say `kind` where it is told of GPU memory."""
    for name in _TOLD:
        setattr(nixl.nixl_agent, name, _saying(kind, getattr(nixl.nixl_agent, name)))


def _saying(kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def said(value: Any) -> Any:
        return kind if isinstance(value, str) and value == _GPU_MEMORY else value

    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*map(said, args), **{name: said(value) for name, value in kwargs.items()})

    return call


def without_a_gpu(torch: Any) -> None:
    """Let torch pin nothing, and record and wait for events that are over at once. With a GPU it stays as it is."""
    if torch.cuda.is_available():
        return
    for name in _PIN:
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor
    torch.cuda.Event = Event
    torch.cuda.current_stream = lambda *_, **__: None
    torch.cuda.synchronize = lambda *_, **__: None


def _unpinned(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)

    return call


class Event:
    """An event of a stream that never has anything under way."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Be made with any options."""

    def record(self, *_: Any) -> None:
        """Mark a place in no stream."""

    def wait(self, *_: Any) -> None:
        """Have nothing to wait for."""

    def synchronize(self) -> None:
        """Have nothing to wait for."""

    def query(self) -> bool:
        """Be over."""
        return True

    def elapsed_time(self, _: Event) -> float:
        """Take no time (ms)."""
        return 0.0
