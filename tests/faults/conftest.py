"""A host with the simulated engine, and the fault matrix: what each case found, printed as a table at the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.faults import simulated

_ROWS: list[tuple[str, ...]] = []
_HEAD = ("fault", "moment", "the operator sees", "state after", "a second run")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with two profiles of the simulated engine, `old` and `new`."""
    copy = playbook.copy_of_project(tmp_path_factory.mktemp("simulated"))
    for name, running in simulated.RUNNING.items():
        (copy / f"group_data/profiles/{name}.yaml").write_text(simulated.PROFILE.format(running=running))
    return copy


@pytest.fixture(scope="session")
def simulated_host(sandbox: Sandbox, served: tuple[Host, playbook.Run]) -> Iterator[Host]:
    assert served[1].code == 0, served[1].text
    sandbox.down("simulated")
    [host] = sandbox.up("simulated")
    simulated.watch(host)
    yield host
    sandbox.down(host.name)


@pytest.fixture
def untouched(sandbox: Sandbox, simulated_host: Host) -> Host:
    """The host as bare as on its first day."""
    [host] = sandbox.reset(simulated_host.name)
    simulated.watch(host)
    return host


@pytest.fixture
def old(simulated_host: Host, project: Path) -> Host:
    """The host, served by `old`, with no fault set and nothing of an earlier case in the way."""
    simulated.without_faults(simulated_host)
    if simulated.serving(simulated_host) != "old":
        run = playbook.deploy(simulated_host, "--data", "profile=old", project=project)
        assert run.code == 0, run.text
    return simulated_host


@pytest.fixture
def matrix() -> Any:
    """Call it with a row of the matrix when the case held."""
    return lambda *cells: _ROWS.append(cells)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _ROWS:
        return
    widths = [min(44, max(map(len, column))) for column in zip(_HEAD, *_ROWS, strict=True)]
    terminalreporter.section(f"fault matrix: {len(_ROWS)} cases held")
    for row in (_HEAD, *_ROWS):
        cells = (cell[:width].ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(" | ".join(cells).rstrip())
