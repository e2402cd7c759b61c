"""Sandbox hosts for tests: one deployed host that tests share, and fresh ones for those that break theirs."""

import os
from collections.abc import Iterator

import pytest

from sandbox import registries
from sandbox.engine_choice import choose
from sandbox.fleet import Sandbox
from sandbox.machine import Host
from sandbox.place import Place, locked
from serving.engine import Engine
from serving.plan import GROUP_DATA
from tests import playbook

KEPT = ("/opt/sglang/engines", "/opt/sglang/uv")


def pytest_configure() -> None:
    """Of several workers each has hosts of its own; what one of them installed all share."""
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        place = Place.current()
        os.environ["SANDBOX_LAYERS"] = str(place.layers)
        os.environ["SANDBOX_DIR"] = str(place.worker(worker).root)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a host are skipped, with the reason, where none can be had."""
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("host"):
            item.add_marker(pytest.mark.skip(reason="sandbox hosts need root: run with sudo"))


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    return Sandbox()


@pytest.fixture(scope="session")
def served(sandbox: Sandbox) -> Iterator[tuple[Host, playbook.Run]]:
    """A host that was bare and is now served, and the run that did it. Tests leave it as they found it."""
    sandbox.down("served")
    sandbox.place.layers.mkdir(parents=True, exist_ok=True)
    with locked(sandbox.place.layers / "first"):  # so that of two workers one installs the engine
        [host] = sandbox.up("served")
        run = playbook.deploy(host)
        if run.code == 0:
            sandbox.keep(host.name, *KEPT)
    yield host, run
    sandbox.down(host.name)


@pytest.fixture
def host(served: tuple[Host, playbook.Run]) -> Host:
    """The shared host, served; where an earlier test failed and left it stopped, it is served again."""
    host, run = served
    assert run.code == 0, run.text
    if host.run(["systemctl", "is-active", "--quiet", "sglang-server"], check=False).returncode:
        again = playbook.deploy(host)
        assert again.code == 0, again.text
    return host


@pytest.fixture(scope="session")
def engine_is_kept(sandbox: Sandbox, request: pytest.FixtureRequest) -> None:
    """Hosts that boot fresh have the engine already; kept from the served one where no earlier run did so."""
    engine = Engine(GROUP_DATA / "engines", choose(registries.wheel_folder()).engine)
    if not list(sandbox.place.layers.glob(f"*/*/opt/sglang/engines/{engine.digest('3.11')}")):
        _host, run = request.getfixturevalue("served")
        assert run.code == 0, run.text


@pytest.fixture
def bare(sandbox: Sandbox, engine_is_kept: None) -> Iterator[Host]:
    """A bare host that has the engine already."""
    sandbox.down("bare")
    [host] = sandbox.up("bare")
    yield host
    sandbox.down(host.name)
