"""`sglang-box logs`: what the playbook's units logged, with what systemd says of them."""

import os
import subprocess
import sys

from hostkit import events, journal, ours, systemd


def show(unit: str | None, lines: int, since: str | None, follow: bool) -> int:
    """Print the last lines, of the current invocation where no `since` is given; with `follow` it does not end."""
    known = ours.services()
    services = [service for service in known if unit in (None, service, service.removesuffix(".service"))]
    if not services:
        what = f"no unit of the playbook is called {unit}" if known else "the playbook has no unit on this host yet"
        print(f"{what}; known: {', '.join(known) or 'none'}", file=sys.stderr)
        return events.REFUSED
    if since and not _is_time(since):
        print(f"since: {since!r} is no time; write 'today', '2 hours ago' or '2026-11-30 14:00'", file=sys.stderr)
        return events.REFUSED
    command = journal.reader(f"--lines={lines}", *_which(services, since))
    sys.stdout.flush()
    if follow:
        os.execvp(command[0], [*command, "--follow"])  # noqa: S606 (no shell on purpose)
    return subprocess.run(command, check=False).returncode


def _is_time(text: str) -> bool:
    """As journalctl reads it (systemd.time(7))."""
    done = subprocess.run(["systemd-analyze", "timestamp", "--", text], capture_output=True, check=False)
    return done.returncode == 0


def _which(services: list[str], since: str | None) -> list[str]:
    if since:
        return [f"--since={since}", *(f"--unit={service}" for service in services)]
    return journal.current(systemd.show(*services).values())
