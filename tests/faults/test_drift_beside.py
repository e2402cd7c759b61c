"""Whatever hands changed on a served host, a run repairs exactly that, and the next one changes nothing."""

import pytest

from sandbox.machine import Host
from tests import playbook
from tests.drifts import BESIDE_A_RIGHT_PROCESS, Drift
from tests.playbook import ask, deploy, main_pid, would_change

pytestmark = pytest.mark.host


def etc(host: Host) -> str:
    """Every file below /etc and /var/lib/sglang, as an eye that is not the playbook's sees it."""
    find = "find /etc /var/lib/sglang /opt/sglang/hostkit /usr/local/bin -printf '%p %m %u %g %s %l %T@\\n'"
    return host.run(["sh", "-c", f"{find} | sort | md5sum"]).stdout


def drift_is_repaired(host: Host, drift: Drift) -> None:
    """`--dry` names this drift alone and changes nothing; a run repairs it; the next run has nothing to do."""
    host.shell(drift.does, check=True)
    before = etc(host)
    named = would_change(host)
    assert len(named) == 1, named
    assert drift.named in named[0]
    assert etc(host) == before, "--dry changed something"
    run = deploy(host)
    assert (run.code, run.changed, run.failed) == (0, 1, 0), run.text
    assert would_change(host) == []
    assert ask(host) == "4"


@pytest.mark.parametrize("name", BESIDE_A_RIGHT_PROCESS)
def test_is_put_right_without_a_restart(host: Host, name: str) -> None:
    pid = main_pid(host)
    drift_is_repaired(host, BESIDE_A_RIGHT_PROCESS[name])
    assert main_pid(host) == pid


def test_a_unit_of_somebody_else_is_left_alone(host: Host) -> None:
    path = "/etc/systemd/system/sglang-mine.service"
    host.write_file(path, "[Service]\nExecStart=/bin/sleep 1000\n")
    host.run(["systemctl", "start", "sglang-mine"])
    try:
        assert would_change(host) == []
        assert playbook.unit(host, "ActiveState", name="sglang-mine.service") == ["active"]
    finally:
        host.shell(f"systemctl stop sglang-mine; rm {path}; systemctl daemon-reload")


def test_a_clock_that_was_wrong_changes_nothing(host: Host) -> None:
    """Nothing is decided on the order of times: every file may be of next year."""
    host.shell("find /etc/sglang /etc/systemd/system /var/lib/sglang -exec touch -h -d 'next year' {} +", check=True)
    assert would_change(host) == []
