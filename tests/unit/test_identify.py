"""A server is known by its executable and its module; words in a command line alone never make one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hostkit import identify, unmanaged
from hostkit.identify import ROUTER, SERVER, VLLM

PYTHON = "/usr/bin/python3.12"

SERVERS = {
    "module": (["python", "-m", "sglang.launch_server", "--model-path", "m"], PYTHON, SERVER),
    "module after options": (["python3", "-u", "-X", "dev", "-Wignore", "-m", "sglang.launch_server"], PYTHON, SERVER),
    "module in one word": (["python3", "-umsglang.launch_server"], PYTHON, SERVER),
    "file of the module": (["python3", "/opt/sglang/launch_server.py", "--tp", "4"], PYTHON, SERVER),
    "console script": (["/venv/bin/python", "/venv/bin/sglang", "serve", "--model-path", "m"], PYTHON, SERVER),
    "python of a distribution": (["python", "-m", "sglang.launch_server"], "/opt/conda/bin/python3", SERVER),
    "router by module": (["python", "-m", "sglang_router.launch_router", "--port", "30000"], PYTHON, ROUTER),
    "router by script": (["/venv/bin/python", "/venv/bin/sglang-router", "launch"], PYTHON, ROUTER),
    "router of its own": (["smg", "launch"], "/usr/local/bin/smg", ROUTER),
    "router with workers": (["python", "-m", "sglang_router.launch_server"], PYTHON, SERVER),
    "vllm serve": (["/venv/bin/python3", "/venv/bin/vllm", "serve", "m"], PYTHON, VLLM),
    "vllm by module": (["python", "-m", "vllm.entrypoints.openai.api_server"], PYTHON, VLLM),
}

STRANGERS = {
    "grep": (["grep", "-m", "sglang.launch_server"], "/usr/bin/grep"),
    "grep -r": (["grep", "-r", "sglang.launch_server", "."], "/usr/bin/grep"),
    "a shell around it": (["bash", "-c", "python -m sglang.launch_server"], "/usr/bin/bash"),
    "a shell with -m": (["bash", "-m", "sglang.launch_server"], "/usr/bin/bash"),
    "an editor": (["vim", "sglang/launch_server.py"], "/usr/bin/vim.basic"),
    "an editor written in Python": (["python3", "/usr/bin/editor", "sglang/launch_server.py"], PYTHON),
    "a pager": (["less", "/var/log/sglang.launch_server.log"], "/usr/bin/less"),
    "sudo": (["sudo", "python", "-m", "sglang.launch_server"], "/usr/bin/sudo"),
    "ssh": (["ssh", "gpu2", "python -m sglang.launch_server"], "/usr/bin/ssh"),
    "tmux": (["tmux", "new", "python -m sglang.launch_server"], "/usr/bin/tmux"),
    "python -c": (["python3", "-c", "import sglang.launch_server", "-m", "sglang.launch_server"], PYTHON),
    "standard input": (["python3", "-", "-m", "sglang.launch_server"], PYTHON),
    "a long option": (["python3", "--version", "-m", "sglang.launch_server"], PYTHON),
    "another module with its name as an argument": (["python3", "-m", "pdb", "sglang.launch_server"], PYTHON),
    "tests of it": (["python3", "-m", "pytest", "-m", "sglang.launch_server"], PYTHON),
    "the benchmark client": (["python3", "-m", "sglang.bench_serving", "--port", "30000"], PYTHON),
    "an offline benchmark": (["python3", "-m", "sglang.bench_one_batch"], PYTHON),
    "a module that ends alike": (["python3", "-m", "my.sglang.launch_server"], PYTHON),
    "a file that ends alike": (["python3", "/opt/mysglang/launch_server.py"], PYTHON),
    "the command line without serve": (["python3", "/venv/bin/sglang", "version"], PYTHON),
    "serve of something else": (["python3", "/venv/bin/mkdocs", "serve", "sglang"], PYTHON),
    "vllm's benchmark": (["python3", "/venv/bin/vllm", "bench", "serve"], PYTHON),
    "Python itself": (["python3"], PYTHON),
    "an executable that lies about its name": (["python3", "-m", "sglang.launch_server"], "/usr/bin/sleep"),
    "nv-hostengine": (["nv-hostengine", "-n"], "/usr/bin/nv-hostengine"),
    "dcgm-exporter": (["/usr/bin/dcgm-exporter", "-f", "/etc/sglang/launch_server.csv"], "/usr/bin/dcgm-exporter"),
    "the display server": (["/usr/lib/xorg/Xorg", ":0", "-auth", "/run/sglang"], "/usr/lib/xorg/Xorg"),
    "no words at all": ([""], "/usr/bin/python3"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_is_a_server(name: str) -> None:
    argv, executable, kind = SERVERS[name]
    assert identify.by_argv(argv, executable, "/") == kind


@pytest.mark.parametrize("name", STRANGERS)
def test_is_no_server(name: str) -> None:
    argv, executable = STRANGERS[name]
    assert identify.by_argv(argv, executable, "/root/sglang") is None


def test_a_script_without_its_folder_is_looked_for_where_it_was_started() -> None:
    assert identify.by_argv(["python3", "launch_server.py"], PYTHON, "/src/python/sglang") == SERVER
    assert identify.by_argv(["python3", "launch_server.py"], PYTHON, "/src/other") is None


@contextmanager
def running(*words: str, executable: str | None = None, **environment: str) -> Iterator[int]:
    """A process of that command line, once it has said "up"; it and what it started are gone afterwards."""
    process = subprocess.Popen(
        words,
        executable=executable,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """A folder for PYTHONPATH with the real module name, which says that it is up and waits."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    code = "import subprocess, sys, time\nsubprocess.Popen(['sleep', '60'])\nprint('up', flush=True)\ntime.sleep(60)\n"
    (package / "launch_server.py").write_text(code)
    return str(tmp_path)


def test_a_running_server_is_found_with_its_children(engine: str) -> None:
    with running(sys.executable, "-m", "sglang.launch_server", PYTHONPATH=engine) as pid:
        [server] = [one for one in unmanaged.find([], [], []) if one.pid == pid]
        assert server.kind == SERVER
        assert next(member for member, _ in server.pids) == pid
        assert len(server.pids) == 2, "it and its sleep"
        assert server.command.endswith("-m sglang.launch_server")


def test_a_process_that_only_speaks_of_it_is_not_found() -> None:
    words = "echo up; exec 3<&0; read -t 60 -u 3 x # python -m sglang.launch_server"
    with running("bash", "-c", words) as pid:
        assert identify.kind_of(pid, {pid}) is None, "not even with GPU memory"


def test_a_title_is_believed_with_gpu_memory_only() -> None:
    code = "import time; print('up', flush=True); time.sleep(60)"
    with running("sglang::scheduler_TP0", "-c", code, executable=sys.executable) as pid:
        assert identify.kind_of(pid, set()) is None
        assert identify.kind_of(pid, {pid}) == identify.WORKER


def test_a_title_is_believed_of_a_python_that_has_the_engine(tmp_path: Path) -> None:
    """As its maps show: an extension of the engine's environment is loaded."""
    packages = tmp_path / "site-packages"
    (packages / "sglang").mkdir(parents=True)
    (packages / "mapped").write_bytes(b"x" * 4096)
    code = (
        "import mmap, time; file = open({path!r}, 'rb'); held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); "
        "print('up', flush=True); time.sleep(60)"
    ).format(path=str(packages / "mapped"))
    with running("sglang::detokenizer", "-c", code, executable=sys.executable) as pid:
        assert identify.kind_of(pid, set()) == identify.WORKER
        (packages / "sglang").rename(packages / "other")
        assert identify.kind_of(pid, set()) is None
