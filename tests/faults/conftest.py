"""A host with the simulated engine, and the fault matrix: what each case found, printed as a table at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import playbook
from tests.faults import simulated

_ROW = "fault matrix"
_HEAD = ("fault", "moment", "the operator sees", "state after", "a second run")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with two profiles of the simulated engine, `old` and `new`."""
    copy = playbook.copy_of_project(tmp_path_factory.mktemp("simulated"))
    for name, running in simulated.RUNNING.items():
        (copy / f"group_data/profiles/{name}.yaml").write_text(simulated.PROFILE.format(running=running))
    return copy


@pytest.fixture(scope="session")
def simulated_host(sandbox: Sandbox, engine_is_kept: None) -> Iterator[Host]:
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
    simulated.call_old("old")
    simulated.without_faults(simulated_host)
    if simulated.serving(simulated_host) != "old":
        run = playbook.deploy(simulated_host, "--data", "profile=old", project=project)
        assert run.code == 0, run.text
    return simulated_host


@pytest.fixture
def either(simulated_host: Host, project: Path) -> Host:
    """The same, served by either profile: the case calls it old, and the other one new. It saves a switch back."""
    simulated.without_faults(simulated_host)
    role = simulated.serving(simulated_host)
    if role is None:
        run = simulated.deploy(simulated_host, project, "old")
        assert run.code == 0, run.text
    simulated.call_old(simulated.profile(role or "old"))
    return simulated_host


@pytest.fixture
def matrix(record_property: Callable[[str, object], None]) -> Any:
    """Call it with a row of the matrix when the case held."""
    return lambda *cells: record_property(_ROW, cells)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    passed = sorted(terminalreporter.stats.get("passed", []), key=lambda report: report.nodeid)
    rows = [row for report in passed for key, row in report.user_properties if key == _ROW]
    if not rows:
        return
    widths = [min(44, max(map(len, column))) for column in zip(_HEAD, *rows, strict=True)]
    terminalreporter.section(f"fault matrix: {len(rows)} cases held")
    for row in (_HEAD, *rows):
        cells = (cell[:width].ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(" | ".join(cells).rstrip())
