"""Files of hostkit are whole or not there: the order of system calls that makes them so."""

import re

import pytest

from sandbox.machine import Host

pytestmark = pytest.mark.host

CALLS = "openat,write,fsync,fdatasync,rename,renameat,renameat2"
WRITES = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from hostkit import atomic; "
    "atomic.write(Path('/root/atomic/file'), 'content')"
)


@pytest.fixture
def trace(host: Host) -> list[str]:
    """System calls of one atomic write, from its first touch of the folder on."""
    host.shell("command -v strace >/dev/null || { apt-get update -qq && apt-get install -y -qq strace; }", check=True)
    archive = host.run(["readlink", "-f", "/usr/local/bin/sglang-box"]).stdout.strip()
    traced = ["strace", "-f", "-o", "/root/trace", f"--trace={CALLS}", "python3", "-c", WRITES, archive]
    host.run(traced)
    lines = host.read_file("/root/trace").splitlines()
    first = next(number for number, line in enumerate(lines) if "/root/atomic/" in line)
    return lines[first:]


def test_content_is_synced_before_the_rename_and_the_folder_after_it(trace: list[str]) -> None:
    steps = [
        r'openat\(.*"/root/atomic/\.file\.\d+\.new", .*O_CREAT.*\) = (?P<file>\d+)',
        r'write\((?P<written>\d+), "content"',
        r"fsync\((?P<synced>\d+)\) += 0",
        r'rename(?:at2?)?\(.*"/root/atomic/\.file\.\d+\.new", .*"/root/atomic/file"',
        r'openat\(.*"/root/atomic", .*O_DIRECTORY.*\) = (?P<folder>\d+)',
        r"fsync\((?P<folder_synced>\d+)\) += 0",
    ]
    found: dict[str, str] = {}
    remaining = iter(trace)
    for step in steps:
        match = next(filter(None, (re.search(step, line) for line in remaining)), None)
        assert match, f"{step} does not follow in\n" + "\n".join(trace)
        found |= match.groupdict()
    assert found["file"] == found["written"] == found["synced"]
    assert found["folder"] == found["folder_synced"]
