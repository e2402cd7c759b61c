"""A hold: the host stays stopped, whoever boots or deploys it, until somebody lets go of it."""

import json
import time
from typing import Any

from hostkit import atomic, paths

# The units have ConditionPathExists=!<this file>.
FILE = paths.STATE / "hold.json"


class Held(Exception):
    """The host is held; the message says by whom, since when and why."""


def put(by: str, why: str) -> None:
    atomic.write(FILE, json.dumps({"schema": 1, "by": by, "why": why, "since": time.time()}) + "\n")


def let_go() -> None:
    FILE.unlink(missing_ok=True)
    atomic.sync_folder(FILE.parent)


def read() -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(FILE.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {"by": "somebody", "why": f"{FILE} cannot be read", "since": 0.0}
    return document


def describe(document: dict[str, Any]) -> str:
    since = time.strftime("%F %T", time.localtime(document["since"]))
    return f"held by {document['by']} since {since}: {document['why']}"


def refuse() -> None:
    """Raises Held while the host is held."""
    document = read()
    if document:
        raise Held(f"the host is {describe(document)}; `sglang-box hold --off` lets go of it")
