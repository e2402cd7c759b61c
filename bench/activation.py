"""What an activation costs beyond the engine's own stop and start. `make bench NAME=activation`.

Both take turns on one host with the real engine: a switch between two releases known to be good (gates, drain, GPUs
shown to be free, files, start, ladder, settle time), and stop, start and waiting for /health by hand.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.kit import hosts, timed
from bench.rows import Row
from sandbox.machine import Host
from tests import playbook

ROUNDS = 3
# The goal: what a switch may cost beyond the engine's own stop and start.
GOAL_S = 5.0
_BY_HAND = (
    "systemctl stop sglang-server; systemctl start sglang-server; "
    "until curl -sf -m 25 http://127.0.0.1:30000/health >/dev/null; do sleep 0.1; done"
)
_TIMED = "TIMEFORMAT=%R; time {{ {}; }} >/dev/null 2>&1"


def measure() -> Iterator[Row]:
    """Rows of medians, s. Raises timed.Failed when a switch does not end with the release that it was for."""
    with hosts.served() as served, tempfile.TemporaryDirectory() as folder:
        [host] = served.first(1)
        releases = [_active(host), _other(host, Path(folder))]
        turn = iter(releases * (ROUNDS + 1))
        next(turn)  # the second one runs
        print(f"bench: {ROUNDS} switches, {ROUNDS} restarts by hand", file=sys.stderr, flush=True)
        times = timed.interleaved(
            ROUNDS, switch=lambda: _switch_s(host, next(turn)), by_hand=lambda: _seconds(host, _BY_HAND)
        )
    by_hand, overhead = times["by_hand"], times["switch"] - times["by_hand"]
    yield Row("switch by activation, quick gates", times["switch"], "s", "by hand", times["switch"] / by_hand)
    yield Row("stop, start, /health by hand", by_hand, "s", "itself", 1.0)
    yield Row("overhead of the activation", overhead, "s", f"goal of {GOAL_S:.0f} s", overhead / GOAL_S)


def _active(host: Host) -> str:
    return host.run(["basename", host.run(["readlink", "/var/lib/sglang/active"]).stdout.strip()]).stdout.strip()


def _other(host: Host, folder: Path) -> str:
    """A second release, deployed and found good: the same with another limit."""
    project = playbook.copy_of_project(folder)
    (project / "group_data/profiles/other.yaml").write_text("extends: sandbox\narguments: {max_running_requests: 8}\n")
    run = playbook.deploy(host, "--data", "profile=other", project=project)
    if run.code:
        raise timed.Failed(run.text)
    return _active(host)


def _switch_s(host: Host, digest: str) -> float:
    seconds = _seconds(host, f"sglang-box rollback {digest}")
    verdict = json.loads(host.read_file(f"/var/lib/sglang/releases/{digest}/acceptance.json"))["verdict"]
    if (_active(host), verdict) != (digest, "good"):
        raise timed.Failed(f"the switch to {digest} ended with {_active(host)}, {verdict}")
    return seconds


def _seconds(host: Host, script: str) -> float:
    return float(host.run(["bash", "-c", _TIMED.format(script)], limit_s=300).stderr)
