"""Sandbox hosts for a benchmark: deployed a few at a time, and shut down at the end, whatever happened."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.kit import timed
from sandbox.demo import KEPT
from sandbox.fleet import Sandbox
from sandbox.machine import Host

# Starting a server takes about 20 s of one core, and four at a time are well within their limits on two.
AT_A_TIME = 2 * (os.cpu_count() or 2)
START_LIMIT_S = 400.0


class Served:
    """Hosts bench1, bench2, ... that serve; more are added as a benchmark asks for them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.hosts: list[Host] = []

    def first(self, count: int) -> list[Host]:
        """The first `count` hosts, deployed. Raises timed.Failed when one does not serve in the end."""
        while len(self.hosts) < count:
            self._add(range(len(self.hosts) + 1, min(len(self.hosts) + AT_A_TIME, count) + 1))
        return self.hosts[:count]

    def _add(self, numbers: range) -> None:
        names = [f"bench{number}" for number in numbers]
        print(f"bench: deploying {', '.join(names)}", file=sys.stderr, flush=True)
        # The first host leaves the engine for the others, and for later runs.
        self.hosts += self._sandbox.up(*names)
        timed.pyinfra("deploy.py", *timed.for_hosts(names), limit_s=START_LIMIT_S)
        self._sandbox.keep(names[0], *KEPT)


@contextmanager
def served() -> Iterator[Served]:
    """Hosts to measure on, none yet; all are shut down when the block ends."""
    served = Served(Sandbox())
    try:
        yield served
    finally:
        names = [host.name for host in served.hosts]
        if names:
            served._sandbox.down(*names)
