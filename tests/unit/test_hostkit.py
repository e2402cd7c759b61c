"""hostkit: what is read from logs and from /proc, and what the controller and the host must agree on."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hostkit import events, gpus, journal, processes, unmanaged
from hostkit import paths as host_paths
from hostkit import release as host_release
from hostkit.events import Result, Verdict
from hostkit.owner import Owner
from serving import paths, schemas
from tasks import bundle
from tests.unit import worlds

DATA = Path(__file__).parent.parent / "data"


def test_controller_and_host_agree_on_paths() -> None:
    shared = {name for name in vars(paths) if name.isupper() and hasattr(host_paths, name)}
    assert {"ENGINES", "RELEASES", "CONFIG", "TARGET", "SERVICE_USER"} <= shared
    assert all(str(getattr(host_paths, name)) == getattr(paths, name) for name in shared)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:30000"),
        ("0.0.0.0", "http://127.0.0.1:30000"),  # noqa: S104
        ("::", "http://[::1]:30000"),
        ("10.1.2.3", "http://10.1.2.3:30000"),
    ],
)
def test_controller_and_host_agree_on_where_a_server_is_asked(address: str, url: str) -> None:
    unit = dataclasses.replace(worlds.plan().units[0], address=address)
    assert unit.base_url == host_release.base_url({"address": address, "port": unit.port}) == url


def test_the_look_fits_on_a_command_line() -> None:
    """Linux takes 128 KiB in one argument; the promise is 100 KiB."""
    loader, modules = bundle.look_program()
    assert len(loader) + len(modules) < 100 << 10


def test_the_look_runs_from_its_command_line_alone(tmp_path: Path) -> None:
    loader, modules = bundle.look_program()
    request = json.dumps({"models": str(tmp_path), "packages": ["bash"]})
    command = [sys.executable, "-I", "-c", loader, modules, request]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True)
    state = schemas.HostState.from_json(json.loads(done.stdout))
    assert state.hostname
    assert "bash" in state.packages
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_the_archive_is_the_same_bytes_each_time() -> None:
    first = bundle.archive()
    bundle.archive.cache_clear()
    assert bundle.archive() == first


def test_a_result_of_the_host_is_read_by_the_controller() -> None:
    result = Result(events.STOPPED, "why", [Verdict("step", False, "evidence", 5.0)], ["line"])
    read = schemas.Result.model_validate(result.as_json())
    assert (read.code, read.verdicts[0].evidence, read.excerpt) == (4, "evidence", ["line"])


def test_an_unmanaged_server_of_the_host_is_read_by_the_controller() -> None:
    owner = Owner("unit", "kimi.service", "systemctl stop kimi.service", "systemctl start kimi.service", "enabled", "")
    server = unmanaged.Server(7, 90, [(7, 90), (8, 91)], "ana", 60, "python", "sglang server", {"0:1": 5}, [1], owner)
    sent = json.loads(json.dumps(server.as_json()))
    assert schemas.Server.model_validate(sent).model_dump() == sent


def test_pci_addresses_are_written_as_the_kernel_writes_them() -> None:
    assert gpus.pci_address("00000000:1B:00.0") == "0000:1b:00.0"


def test_a_process_is_found_with_its_start_time_and_command() -> None:
    found = processes.read(int(Path("/proc/self").readlink().name))
    assert found is not None
    assert "pytest" in found.command or "python" in found.command
    assert processes.read(2**22 + 1) is None


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("launch --api-key sk-1 --port 1", "launch --api-key *** --port 1"),
        ("launch --admin-api-key=sk-1", "launch --admin-api-key=***"),
        ("launch --hf-token hf_1", "launch --hf-token ***"),
        ("launch --tokenizer-path t --max-total-tokens 9", "launch --tokenizer-path t --max-total-tokens 9"),
    ],
)
def test_a_foreign_command_line_is_shown_without_its_secrets(command: str, shown: str) -> None:
    assert processes.without_secrets(command) == shown


def test_a_listening_socket_is_found_with_its_owner() -> None:
    import os
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ("127.0.0.1", port, os.getpid()) in processes.listeners()


REAL_START = (DATA / "cpu-0.5.23" / "server.log").read_text(encoding="utf-8").splitlines()


def test_the_stages_of_a_real_start_are_seen_in_order() -> None:
    stages = [stage.name for stage in map(journal.stage_of, REAL_START) if stage]
    seen = list(dict.fromkeys(stages))
    assert seen == [
        "arguments read",
        "joining ranks",
        "loading weights",
        "weights loaded",
        "KV cache allocated",
        "warming up",
        "fired up",
    ]


def test_no_line_of_a_real_start_is_fatal() -> None:
    assert [line for line in REAL_START if journal.is_fatal(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-30 15:50:12] [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "Exception: Capture cuda graph failed: CUDA error: out of memory",
        "ninja: build stopped: subcommand failed.",
    ],
)
def test_lines_after_which_no_start_succeeds_are_fatal(line: str) -> None:
    assert journal.is_fatal(line)


def test_the_cause_is_the_last_line_that_speaks_of_an_error() -> None:
    lines = [
        "Load weight begin",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "ValueError: no such model",
        "[2026-11-30] kill_process_tree called: parent_pid=1",
    ]
    assert journal.cause(lines) == "ValueError: no such model"
    assert journal.cause([]) == "it logged nothing"
    assert journal.cause(["usage: launch_server", "launch_server: error: ambiguous option"]).endswith(
        "ambiguous option"
    )
    sigquit = "[2026-11-30] Received sigquit from a child process. It usually means the child failed."
    assert journal.cause(["torch.OutOfMemoryError: CUDA out of memory.", sigquit]).startswith("torch.OutOfMemoryError")


def test_bytes_and_colours_of_the_journal_become_text() -> None:
    assert journal.message_lines([27, 91, 51, 49, 109, 114, 101, 100]) == ["red"]
    assert journal.message_lines("a\rb\n\n") == ["a", "b"]


def test_every_engine_brings_what_a_fetch_runs_on() -> None:
    """The checkpoint job runs under the engine's Python, and imports requests."""
    locks = (Path(__file__).parents[2] / "group_data/engines").glob("*.lock")
    servers = [lock.read_text() for lock in locks if not lock.stem.startswith(("router", "uv"))]
    assert len(servers) > 1
    assert all("\nrequests==" in text for text in servers)
