"""systemd itself reads the units of every profile, and measures how little they may do."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from serving.plan import GROUP_DATA
from tests.unit import worlds

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
PROFILES = sorted(path.stem for path in (GROUP_DATA / "profiles").glob("*.yaml"))
# 10 is a service without any restriction. PD workers too: CUDA IPC forbids PrivateIPC= and PrivateUsers=, which weigh
# little, and asks for no capability.
WORKER, ROUTER = 2.0, 1.2


def written(profile: str, folder: Path) -> list[Path]:
    """The unit files of the profile, with programs that exist on this computer."""
    paths = []
    for file in worlds.release(worlds.host_of(profile), profile=profile).files:
        if file.path.startswith("/etc/systemd/system/"):
            text = re.sub(r"/opt/sglang/engines/\w+/bin/python|/usr/local/bin/sglang-box", "/bin/true", file.text)
            paths.append(folder / Path(file.path).name)
            paths[-1].write_text(text, encoding="utf-8")
    return paths


def verify(folder: Path, paths: list[Path]) -> str:
    command = ["systemd-analyze", "verify", "--man=no", *(f"./{path.name}" for path in paths)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_no_fault_is_found_in_the_units(profile: str, tmp_path: Path) -> None:
    assert verify(tmp_path, written(profile, tmp_path)) == ""


def test_a_fault_would_be_found(tmp_path: Path) -> None:
    paths = written("pd", tmp_path)
    paths[-1].write_text(paths[-1].read_text().replace("PrivateUsers=yes", "PrivateUser=yes"))
    assert "'PrivateUser'" in verify(tmp_path, paths)


@pytest.mark.parametrize("profile", ["tp4-mxfp4", "2x-tp4", "pd"])
def test_the_units_may_do_little(profile: str, tmp_path: Path) -> None:
    release = worlds.release(profile=profile)
    written(profile, tmp_path)
    for unit in release.plan.units:
        command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", f"./{unit.service}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        exposure = float(done.stdout.strip().splitlines()[-1].split(": ")[1].split()[0])
        assert exposure <= (ROUTER if unit.is_router else WORKER), unit.name
