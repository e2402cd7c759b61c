"""What is told of a unit that failed, and to whom: body of sglang-notify@.service."""

import json
import os
import platform
import subprocess
import sys
import time
from typing import Any

from hostkit import atomic, credential, events, journal, paths, redact, release, systemd, telling

FILE = paths.CONFIG / "notify.json"
_LAST_LINES = 500
_CAUSE_LENGTH = 500  # characters
TEST = "test"


def put_from_stdin() -> None:
    """Write what comes on standard input, readable by root alone from its first moment."""
    atomic.write(FILE, sys.stdin.read(), mode=0o600)


def notify(service: str) -> int:
    """Body of sglang-notify@<service>: tell of its failure, or send a test message; what came of it is printed."""
    try:
        setting = json.loads(FILE.read_text())
    except FileNotFoundError:
        print(f"{service}: nobody is told, `notify` in group_data/all.py is None")
        return events.OK
    message = test_message() if service == TEST else message_of(service)
    try:
        print(f"{service}: told {telling.tell(setting, message)}: {message['text']}")
    except telling.NotTold as problem:
        print(f"{service}: nobody was told, {problem}: {message['text']}")
        return events.FAILED
    return events.OK


def test() -> int:
    """`sglang-box notify --test`: through the very unit that a failure starts; prints what it logged."""
    if not FILE.exists():
        print("nobody is to be told: set `notify` in group_data/all.py and deploy", file=sys.stderr)
        return events.REFUSED
    unit, began = paths.NOTIFIER.replace("@", f"@{TEST}"), time.time()
    started = subprocess.run(["systemctl", "start", unit], capture_output=True, text=True, check=False)
    lines = _lines(f"--unit={unit}", f"--since=@{began:.6f}")
    print("\n".join(line for line in lines if line.startswith(f"{TEST}: ")) or started.stderr.strip())
    systemd.run("systemctl", "reset-failed", unit, check=False)
    return events.OK if started.returncode == 0 else events.FAILED


def message_of(service: str) -> dict[str, Any]:
    """What is told of a unit that failed, schema 1. `since` is ISO 8601, `restarts` those since it was last started."""
    [unit] = systemd.show(service).values()
    document = _active_release()
    invocation = os.environ.get("MONITOR_INVOCATION_ID") or unit.invocation_id
    lines = _lines(f"_SYSTEMD_INVOCATION_ID={invocation}") if invocation else []
    cause = redact.text(journal.cause(lines), credential.known_to(service, document)).replace("\0", "")[:_CAUSE_LENGTH]
    text = f"{service} on {platform.node()} {_what(unit)}: {cause}"
    return {
        **_message(service, text, document),
        "result": os.environ.get("MONITOR_SERVICE_RESULT") or unit.result,
        "since": _since(service),
        "restarts": unit.restarts,
        "cause": cause,
    }


def _what(unit: systemd.Unit) -> str:
    """A newer systemd tells of each death, also of one that it follows with a restart; by now that may have come."""
    if unit.active == "failed":
        return f"failed and stays down ({unit.result}, {unit.ended})"
    if unit.active == "activating":
        return f"died ({unit.ended}) and is started again"
    return f"failed before and is {unit.active} now"


def test_message() -> dict[str, Any]:
    text = f"test from {platform.node()}: nothing failed"
    return _message(TEST, text, _active_release())


def _message(service: str, text: str, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        "host": platform.node(),
        "unit": service,
        "result": "success",
        "since": time.strftime("%FT%T%z"),
        "restarts": 0,
        "cause": "",
        "release": document.get("digest"),
        "profile": document.get("profile"),
        "text": text,
    }


def _active_release() -> dict[str, Any]:
    try:
        return release.load(release.active() or "")
    except release.Damaged:
        return {}


def _since(service: str) -> str:
    words = ("--value", "--property=StateChangeTimestamp", "--timestamp=unix")  # unix: since systemd 251
    seconds = systemd.run("systemctl", "show", *words, service, check=False).strip().removeprefix("@")
    return time.strftime("%FT%T%z", time.localtime(float(seconds) if seconds else None))


def _lines(*which: str) -> list[str]:
    """The last lines of what journalctl is asked for; those of a process that just died may still be on their way."""
    systemd.run("journalctl", f"--namespace={paths.JOURNAL_NAMESPACE}", "--sync", check=False)
    return journal.last_lines(_LAST_LINES, *which)
