"""The engine's own command-line parser, asked by the engine's own Python: no GPU, no model, nothing started.

    <engine>/bin/python engine_parser.py check < request.json
    <engine>/bin/python engine_parser.py dump sglang

A request is {"package": "sglang", "argv": ["--tp-size", "4"]}. `check` prints {"ok", "message", "effective"}
and exits 0, or 2 where the engine would refuse its arguments. `dump` prints the engine contract as group_data
keeps it. One file, standard library only: the engine's environment has nothing else of this project.
"""

import abc
import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import sys
import types
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, NoReturn

OK, REFUSED = 0, 2

# SGLang's modules import these to define kernels, which no parser runs. Standing in for them always, and not
# only where they are missing, gives the same answer in the full engine, in the sandbox's light one and on any
# GPU. It leaves CUDA alone, and takes 3 s where the real imports take 29 s (sglang 0.5.23, two busy cores).
# A contract dumped with the real ones is the same to the byte.
_STOOD_IN = ("torch", "triton")
# SGLang asks by hasattr() for accelerators that only other builds of torch have.
_ABSENT = ("npu", "musa", "hpu", "mlu")
# What `check` prints may end in a log: where a name has one of these in it, the value is not shown.
_SECRETS = (
    "api_key",
    "password",
    "watermark_config",
    "watermark_key",
    "db_url",
    "redis_url",
    "connect_descriptor",
)


class Rejected(Exception):
    """The parser does not take these arguments; the message is its own."""


def main(argv: Sequence[str]) -> int:
    options = _arguments().parse_args(argv)
    # Imports of the engine may print; the answer must be the only thing on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        text, code = _dump(options.package) if options.command == "dump" else _check(json.load(sys.stdin))
    print(text)
    return code


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="read a request from standard input")
    commands.add_parser("dump", help="print the engine contract").add_argument("package", choices=PARSERS)
    return parser


def _check(request: dict[str, Any]) -> tuple[str, int]:
    parser = PARSERS[request["package"]]()
    try:
        given = parse(parser, with_config_file(parser, request["argv"]))
    except Rejected as rejected:
        return json.dumps({"ok": False, "message": str(rejected), "effective": {}}), REFUSED
    verdict = {"ok": True, "message": "", "effective": effective(parser, given)}
    return json.dumps(verdict, sort_keys=True, default=str), OK


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    """What the parser makes of argv, by dest. Abbreviations count, as for the server. Raises Rejected."""

    def reject(message: str) -> NoReturn:
        raise Rejected(message)

    parser.error = reject  # type: ignore[method-assign]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the text of --help
            return vars(parser.parse_args(argv))
    except SystemExit:
        raise Rejected("an argument makes the engine print something and end (--help, --version)") from None
    except (ValueError, AssertionError) as problem:  # raised by SGLang's own argparse actions
        raise Rejected(str(problem)) from problem


def with_config_file(parser: argparse.ArgumentParser, argv: Sequence[str]) -> Sequence[str]:
    """SGLang replaces `--config FILE` by what the file says before it parses. Raises Rejected."""
    if "--config" not in argv:
        return argv
    module = importlib.import_module("sglang.srt.utils.server_args_config_parser")
    try:
        merged: list[str] = module.ConfigArgumentMerger(parser).merge_config_with_args(list(argv))
    except (ValueError, OSError) as problem:
        raise Rejected(str(problem)) from problem
    return merged


def effective(parser: argparse.ArgumentParser, given: dict[str, Any]) -> dict[str, Any]:
    """The values that differ from the parser's defaults; secrets only as the fact that they are set."""
    return {
        dest: "<redacted>" if any(mark in dest for mark in _SECRETS) else value
        for dest, value in given.items()
        if value != parser.get_default(dest)
    }


def _dump(package: str) -> tuple[str, int]:
    # Some of SGLang's environment variables add choices: the contract must not depend on those of a shell.
    for name in [name for name in os.environ if name.startswith(("SGLANG_", "SGL_"))]:
        del os.environ[name]
    flags = [describe(action) for action in PARSERS[package]()._actions if action.dest != "help"]
    flags.sort(key=lambda flag: flag["flags"])
    return render(package, importlib.metadata.version(package), flags), OK


def describe(action: argparse.Action) -> dict[str, Any]:
    """One option as data. `nargs` is 0 for a switch and null for exactly one value, as in argparse."""
    return {
        "flags": list(action.option_strings),
        "dest": action.dest,
        "action": type(action).__name__,
        "type": getattr(action.type, "__name__", None),
        "nargs": action.nargs,
        # Some are sets in the source: their order changes with each run.
        "choices": None if action.choices is None else sorted(action.choices, key=str),
        "default": action.default,
        "required": action.required,
        "deprecated": is_deprecated(action),
    }


def is_deprecated(action: argparse.Action) -> bool:
    """Tell by the action's name or the first word of the help; further on, the word is about another flag."""
    help_text = (action.help or "").lstrip("([ ").lower()
    return type(action).__name__.startswith("Deprecated") or help_text.startswith("deprecated")


def render(package: str, version: str, flags: Sequence[dict[str, Any]]) -> str:
    """One line for a flag, so that the difference between two releases reads as one."""
    lines = ",\n".join(json.dumps(flag, default=str) for flag in flags)
    head = f'"schema": 1,\n"package": {json.dumps(package)},\n"version": {json.dumps(version)},\n'
    return f'{{\n{head}"flags": [\n{lines}\n]\n}}'


def sglang_parser() -> argparse.ArgumentParser:
    """The parser of `sglang serve`, made as the server makes it."""
    sys.meta_path.insert(0, _StandInFinder())
    _import_without_init("sglang")
    server_args = importlib.import_module("sglang.srt.server_args")
    parser = argparse.ArgumentParser(prog="sglang serve")
    server_args.ServerArgs.add_cli_args(parser)
    return parser


def router_parser() -> argparse.ArgumentParser:
    """The parser of sglang_router.launch_router."""
    router_args = importlib.import_module("sglang_router.router_args")
    parser = argparse.ArgumentParser(prog="sglang-router")
    router_args.RouterArgs.add_cli_args(parser, use_router_prefix=False)
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "sglang": sglang_parser,
    "sglang-router": router_parser,
}


def _import_without_init(name: str) -> None:
    """Make submodules importable without the package's __init__, which for SGLang imports transformers."""
    spec = PathFinder.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{name} is not installed in {sys.prefix}", name=name)
    package = types.ModuleType(name)
    package.__spec__, package.__path__ = spec, spec.submodule_search_locations
    sys.modules[name] = package


class _StandIn(abc.ABCMeta):
    """A class that takes part in any expression at module level: base class, decorator, annotation, number.

    A metaclass, since SGLang derives classes from torch's; an ABCMeta, since some of those are abstract too.
    As a condition it is false: no accelerator is available.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__bases__ != (object,):  # a class of SGLang's own, derived from a stand-in
            return super().__call__(*args, **kwargs)
        is_decorating = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if is_decorating else _stand_in(cls.__name__)

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __bool__(cls) -> bool:
        return False

    def __lt__(cls, other: Any) -> bool:
        return True

    def __neg__(cls) -> Any:
        return cls

    def __int__(cls) -> int:
        return 0

    __index__ = __int__

    def __float__(cls) -> float:
        return 0.0


def _stand_in(name: str) -> Any:
    return _StandIn(name, (), {})


class _StandInModule(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - makes it a package, as the import system asks
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _ABSENT:
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or _stand_in(name)


class _StandInFinder:
    """Finds every module below the packages that are stood in for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in _STOOD_IN:
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
