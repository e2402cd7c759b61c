"""Tells an inference server by what runs: its executable and the module or script in its argv.

Words somewhere in a command line prove nothing: `grep launch_server`, an editor or a shell have them, too.
"""

import os
import re
from collections.abc import Container
from pathlib import Path

from hostkit import processes

SERVER, ROUTER, WORKER, VLLM = "sglang server", "sglang router", "sglang worker", "vllm server"
# What an operator may start by `python -m`, or as the file of that module.
_MODULES = {
    "sglang.launch_server": SERVER,
    "sglang_router.launch_server": SERVER,
    "smg.launch_server": SERVER,
    "sglang_router.launch_router": ROUTER,
    "smg.launch_router": ROUTER,
    "vllm.entrypoints.openai.api_server": VLLM,
    "vllm.entrypoints.api_server": VLLM,
    "vllm.entrypoints.grpc_server": VLLM,
}
# Command lines with subcommands, of which one serves (entry points of sglang 0.5.23 and vllm 0.11).
_SERVE = {"sglang": SERVER, "sglang.cli.main": SERVER, "vllm": VLLM, "vllm.entrypoints.cli.main": VLLM}
# sglang-router 0.3.2 and smg 1.13.0: console scripts, or the gateway as a program of its own.
_ROUTERS = ("sglang-router", "sgl-model-gateway", "smg", "amg")
# setproctitle of sglang 0.5.23 and vllm: it replaces the whole argv.
_TITLE = re.compile(
    r"(sglang::(scheduler|detokenizer|data_parallel_controller|tokenizer_worker)|sgl_diffusion::scheduler|VLLM::)"
)
_PYTHON = re.compile(r"python\d*(\.\d+)?t?")
_MAY_BE = re.compile(rb"sgl|smg|amg|vllm|launch_|api_server|grpc_server", re.IGNORECASE)
_PACKAGES = re.compile(r"(/\S*/(?:site|dist)-packages)/")


def kind_of(pid: int, gpu_holders: Container[int]) -> str | None:
    """What kind of server the process surely is, None for any other. A title alone is not believed."""
    try:
        command = (processes.PROC / str(pid) / "cmdline").read_bytes()
        if not _MAY_BE.search(command):
            return None
        argv = command.decode(errors="replace").rstrip("\0").split("\0")
        executable, folder = _link(pid, "exe"), _link(pid, "cwd")
        if _TITLE.match(argv[0]):
            return WORKER if pid in gpu_holders or _has_engine(pid, executable) else None
        return by_argv(argv, executable, folder)
    except OSError:
        return None  # gone, or not to be looked into


def by_argv(argv: list[str], executable: str, folder: str) -> str | None:
    """The kind of server that this executable runs with these words, in this working folder."""
    program = os.path.basename(executable)
    if program in _ROUTERS:
        return ROUTER
    if not _PYTHON.fullmatch(program):
        return None
    module, script, words = _what_python_runs(argv[1:])
    if module:
        return _MODULES.get(module) or _by_subcommand(module, words)
    name = os.path.basename(script)
    if name in _ROUTERS:
        return ROUTER
    path = os.path.normpath(os.path.join(folder, script)) if script else ""
    files = (kind for module, kind in _MODULES.items() if path.endswith(f"/{module.replace('.', '/')}.py"))
    return next(files, None) or _by_subcommand(name, words)


def _by_subcommand(name: str, words: list[str]) -> str | None:
    return _SERVE.get(name) if words[:1] == ["serve"] else None


def _what_python_runs(words: list[str]) -> tuple[str, str, list[str]]:
    """(module, script, its own words): one of the first two, or none for `-c` and for standard input."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            return "", word, rest
        if word == "-" or word.startswith("--"):
            return "", "", []
        option = re.search("[mcXW]", word)  # the first of the letters that take a value ends the word
        if option:
            value = word[option.end() :] or (rest.pop(0) if rest else "")
            if option.group() in "mc":
                return (value if option.group() == "m" else ""), "", rest
    return "", "", []


def _has_engine(pid: int, executable: str) -> bool:
    """A Python that has mapped files from a folder of packages in which sglang or vllm lies."""
    if not _PYTHON.fullmatch(os.path.basename(executable)):
        return False
    folders = set(_PACKAGES.findall((processes.PROC / str(pid) / "maps").read_text(errors="replace")))
    root = f"{processes.PROC}/{pid}/root"
    return any(Path(f"{root}{folder}/{name}").is_dir() for folder in folders for name in ("sglang", "vllm"))


def _link(pid: int, name: str) -> str:
    return os.readlink(processes.PROC / str(pid) / name).removesuffix(" (deleted)")
