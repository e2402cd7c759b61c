"""The hosts and how to reach them. Without any, it is the sandbox on this computer.

A host is its name or address, with what SSH needs to know, for example
    ("gpu1.example.org", {"ssh_user": "root"})
    ("gpu2.example.org", {"ssh_user": "admin", "_sudo": True})
"""

import sys

from tasks import reach as _reach

_reach.explain_failures()

gpu_hosts: list[tuple[str, dict[str, object]]] = []

if not gpu_hosts:
    from sandbox import hosts as _sandbox_hosts

    sandbox = _sandbox_hosts()
    print(
        f"NO GPU HOST IS NAMED IN inventory.py: THIS IS THE SANDBOX ({', '.join(n for n, _ in sandbox)})",
        file=sys.stderr,
    )
