"""Sandbox hosts for tests: one deployed host that tests share, and fresh ones for those that break theirs."""

import os
from collections.abc import Iterator

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook

KEPT = ("/opt/sglang/engines", "/opt/sglang/uv")


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
    [host] = sandbox.up("served")
    run = playbook.deploy(host)
    if run.code == 0:
        sandbox.keep(host.name, *KEPT)
    yield host, run
    sandbox.down(host.name)


@pytest.fixture
def host(served: tuple[Host, playbook.Run]) -> Host:
    """The shared host, served."""
    assert served[1].code == 0, served[1].text
    return served[0]


@pytest.fixture
def bare(sandbox: Sandbox, served: tuple[Host, playbook.Run]) -> Iterator[Host]:
    """A bare host that has the engine already, kept from the served one."""
    assert served[1].code == 0, served[1].text
    sandbox.down("bare")
    [host] = sandbox.up("bare")
    yield host
    sandbox.down(host.name)
