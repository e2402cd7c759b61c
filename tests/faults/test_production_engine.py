"""The production engine itself: its lock installed, its parser asked, its compiler run, the tiny checkpoint served.

What this proves: the lock resolves and installs, its packages load together, its nvcc compiles for sm_120 as the
service user, every shipped profile's argv is taken by the real parser, and the real server answers right on a CPU.
What it does not prove: anything about GPU kernels.
"""

import shutil
from collections.abc import Iterator

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from serving.engine import Engine
from serving.plan import GROUP_DATA
from tests import playbook
from tests.integration.test_argv_property import judged_by_the_engine
from tests.unit import worlds

pytestmark = pytest.mark.host

ENGINE = "sglang-0.5.23"
PROFILES = sorted(path.stem for path in (GROUP_DATA / "profiles").glob("*.yaml") if "sandbox" not in path.stem)


@pytest.fixture(scope="module")
def production(sandbox: Sandbox) -> Iterator[tuple[Host, playbook.Run]]:
    """A bare host on which the sandbox's profile is deployed with the production engine."""
    needed = Engine(GROUP_DATA / "engines", ENGINE).data.installed_gb * 1.15 + 2
    free = shutil.disk_usage(sandbox.place.root.parent).free / 1e9
    if free < needed:
        pytest.skip(f"the disk of {sandbox.place.root} has {free:.0f} GB free, {ENGINE} needs {needed:.0f} GB")
    sandbox.down("production")
    [host] = sandbox.up("production")
    try:
        yield host, playbook.deploy(host, "--data", f"engine={ENGINE}", limit_s=900)
    finally:
        sandbox.down(host.name)
        shutil.rmtree(host.folder / "upper", ignore_errors=True)  # its disk is not wanted again, and large


def test_it_is_installed_checked_and_serves_right_answers(production: tuple[Host, playbook.Run]) -> None:
    host, run = production
    assert run.code == 0, run.text
    assert run.lines_with("torch, sglang imported, sglang.launch_server --help read; nvcc 13.0 compiles for sm_120f")
    assert playbook.ask(host) == "4"
    assert playbook.ask(host, "Reply with the single word: pong") == "pong"


def test_every_shipped_profile_is_taken_by_its_real_parser(production: tuple[Host, playbook.Run]) -> None:
    workers = {(name, unit.name): unit for name in PROFILES for unit in worlds.plan(profile=name).workers}
    verdicts = judged_by_the_engine(production[0], [list(unit.argv[3:]) for unit in workers.values()])
    assert dict(zip(workers, verdicts, strict=True)) == dict.fromkeys(workers, "taken")


def test_the_look_at_it_takes_milliseconds_and_finds_nothing(production: tuple[Host, playbook.Run]) -> None:
    host, _ = production
    assert playbook.would_change(host, "--data", f"engine={ENGINE}") == []
