"""What a run costs that has nothing to change, beside pyinfra alone, its built-in operations, and Ansible.

All take turns in one run, on the same hosts; values are medians of wall time. `make bench NAME=noop`.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.kit import ansible, delay, hosts, same_state, timed
from bench.rows import Row
from sandbox.machine import Host

# Number of hosts -> rounds.
ROUNDS = {1: 5, 3: 3, 10: 3}
DELAY_S, DELAYED_ROUNDS = 0.08, 3
BUILT_IN = "bench/same_state/deploy.py"
_ANSWERED = re.compile(r"tokens, ([\d.]+) s\)")
_ASK = "TIMEFORMAT=%R; time sglang-box ask --within 5 >/dev/null"


def measure() -> Iterator[Row]:
    """Rows for each number of hosts, and for one host far away. Raises timed.Failed when a run changes anything."""
    with hosts.served() as served, tempfile.TemporaryDirectory() as folder:
        for count, rounds in ROUNDS.items():
            chosen = served.first(count)
            state = same_state.write_down(chosen[0], Path(folder))
            ansible.prepare(chosen, state)
            yield from _compared(chosen, state, rounds, f"{count} host{'s' * (count > 1)}")
            if count == 1:
                yield from _far_away(chosen[0], state)


def _far_away(host: Host, state: Path) -> list[Row]:
    near = delay.connect_s(host)
    with delay.delayed(host, DELAY_S):
        far = delay.connect_s(host)
        rows = _compared([host], state, DELAYED_ROUNDS, f"1 host, +{DELAY_S * 1000:.0f} ms round trip")
    return [Row(f"TCP connect, +{DELAY_S * 1000:.0f} ms round trip (TUN)", far, "s", "without", far / near), *rows]


def _compared(chosen: Sequence[Host], state: Path, rounds: int, where: str) -> list[Row]:
    print(f"bench: {where}, {rounds} rounds", file=sys.stderr, flush=True)
    limits = timed.for_hosts(host.name for host in chosen)
    answers: list[float] = []

    def noop() -> float:
        run = timed.unchanged(timed.pyinfra("deploy.py", *limits), len(chosen))
        answers.append(max(map(float, _ANSWERED.findall(run.stderr))))
        return run.seconds

    def built_in() -> float:
        run = timed.pyinfra(BUILT_IN, *limits, "--data", f"same_state={state}")
        return timed.unchanged(run, len(chosen)).seconds

    times = timed.interleaved(
        rounds,
        noop=noop,
        floor=lambda: timed.pyinfra(*limits, "exec", "--", "true").seconds,
        answer=lambda: answers[-1],
        question=lambda: _question_s(chosen),
        built_in=built_in,
        ansible=lambda: ansible.run(chosen, state),
    )
    return _rows(times, where)


def _question_s(chosen: Sequence[Host]) -> float:
    """Time (s) of the question as the host itself sees it, with the start of the program that asks; the slowest."""
    with ThreadPoolExecutor(len(chosen)) as pool:
        return max(pool.map(lambda host: float(host.run(["bash", "-c", _ASK], limit_s=60).stderr), chosen))


def _rows(times: dict[str, float], where: str) -> list[Row]:
    noop, floor = times["noop"], times["floor"]

    def row(name: str, seconds: float, other: str, its: float) -> Row:
        return Row(f"{name}, {where}", seconds, "s", other, seconds / its)

    bare = "pyinfra exec -- true"
    return [
        row("no-op deploy", noop, bare, floor),
        row("no-op deploy less the server's answer", noop - times["answer"], bare, floor),
        row("no-op deploy less all of `sglang-box ask`", noop - times["question"], bare, floor),
        row(bare, floor, "itself", floor),
        row("pyinfra's operations, same state", times["built_in"], "no-op deploy", noop),
        row(f"Ansible {ansible.version()}, same state", times["ansible"], "no-op deploy", noop),
    ]
