"""A host with no route out is taken from bare to serving by what a bundle holds."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine_choice import LIGHT
from sandbox.fleet import Sandbox
from sandbox.machine import Host
from sandbox.registries import wheel_folder
from tests import playbook
from tests.playbook import ROOT, TINY

pytestmark = pytest.mark.host

INSIDE = "/media/bundle"
REVISION = f"checkpoints/{TINY.removeprefix('/srv/models/')}"


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle that `make bundle` makes of the sandbox's profile, with its checkpoint."""
    if wheel_folder() is None:
        pytest.skip(f"no folder named by PIP_FIND_LINKS has the CPU build of torch that {LIGHT} needs")
    out = tmp_path_factory.mktemp("carried") / "bundle"
    checkpoint = f"CHECKPOINT={ROOT / 'sandbox/checkpoint/tiny'}"
    command = ["make", "--no-print-directory", "bundle", "PROFILE=sandbox", f"OUT={out}", checkpoint]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{out}: " in done.stdout
    return out


@pytest.fixture
def cut_off(sandbox: Sandbox, carried: Path) -> Iterator[Host]:
    """A host with the bundle, without an engine, from which no way leads out."""
    sandbox.down("cut-off")
    [host] = sandbox.up("cut-off", binds={str(carried): INSIDE})
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends python3.11-venv"
    host.run(["sh", "-c", f"apt-get update -qq && {install} >/dev/null"])
    host.run(["sh", "-c", "rm -rf /opt/sglang/engines/* /opt/sglang/uv/* && ip route del default"])
    assert host.shell("ip route get 192.0.2.1").returncode, "there is no way out"
    yield host
    sandbox.down(host.name)


def test_a_bundle_says_what_it_holds(carried: Path) -> None:
    content = json.loads((carried / "bundle.json").read_text())
    assert content["engines"] == [LIGHT]
    assert content["checkpoints"] == [REVISION]
    assert any(name.startswith("uv-") for name in content["wheels"])
    assert sorted(content["wheels"]) == sorted(path.name for path in (carried / "wheels").iterdir())


def test_a_host_without_a_network_is_served_from_it(cut_off: Host) -> None:
    words = ("--data", f"bundle={INSIDE}", "--data", f"models={INSIDE}/checkpoints")
    missing = playbook.deploy(cut_off, "--data", "bundle=/nowhere")
    assert missing.code
    assert missing.lines_with("bundle /nowhere: has no bundle.json that can be read; make bundle PROFILE=sandbox")
    run = playbook.deploy(cut_off, *words)
    assert run.code == 0, run.text
    assert playbook.ask(cut_off) == "4"
    assert playbook.deploy(cut_off, *words).changed == 0
