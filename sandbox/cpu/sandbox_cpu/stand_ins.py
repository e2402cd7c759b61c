"""Stand-ins for triton and torchvision, which SGLang imports when it starts and does not call on a CPU.

They serve only where the real package is not installed: the finder is the last one that Python asks. The real
triton takes 0.9 GB, and torchvision's kernels must match the build of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSIONS = {"triton": "3.6.0", "torchvision": "0.0.0"}


def install() -> None:
    """Let missing packages be found as stand-ins."""
    sys.meta_path.append(_Finder())


def decorator(*args: Any, **kwargs: Any) -> Any:
    """Stand in for @triton.jit, bare or with options: the function stays what it is."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return args[0]
    return decorator


def next_power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()


def cdiv(dividend: int, divisor: int) -> int:
    """Divide and round up."""
    return -(-dividend // divisor)


# Module-level code of SGLang runs these for real: it decorates kernels and computes block sizes with them.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "jit": decorator,
    "autotune": decorator,
    "heuristics": decorator,
    "constexpr_function": decorator,
    "next_power_of_2": next_power_of_2,
    "cdiv": cdiv,
}


class _Names(type):
    """An enumeration that has every member: InterpolationMode.BICUBIC is "BICUBIC"."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


def _stand_in_class(name: str) -> type:
    return _Names(name, (), {"__init__": _accept, "__class_getitem__": classmethod(lambda cls, item: cls)})


def _accept(self: object, *args: Any, **kwargs: Any) -> None:
    """Be made with any arguments."""


class _StandIn(ModuleType):
    """A module that has every attribute: classes where the name is capitalised, else modules."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = VERSIONS[name.partition(".")[0]]
        self.__spec__ = ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in FUNCTIONS:
            return FUNCTIONS[name]
        value = _stand_in_class(name) if name[0].isupper() else self._submodule(name)
        setattr(self, name, value)
        return value

    def _submodule(self, name: str) -> ModuleType:
        full_name = f"{self.__name__}.{name}"
        return sys.modules.setdefault(full_name, _StandIn(full_name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer where a lower-case name turns out to be a function."""
        return decorator(*args, **kwargs)


class _Finder:
    """Finds the stand-ins and all modules below them."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in VERSIONS:
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""
