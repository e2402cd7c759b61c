"""Which units are the playbook's own: those that a release on this host names, and no other.

A unit of somebody else may well be called sglang-something; it is never stopped, changed or removed.
"""

import json
from typing import Any

from hostkit import paths


def units() -> dict[str, dict[str, Any]]:
    """What the releases kept on this host say of their units, by service name; the active release has the last word."""
    found: dict[str, dict[str, Any]] = {}
    folders = sorted(paths.RELEASES.glob("*/release.json"), key=lambda path: path.parent.name == _active())
    for path in folders:
        try:
            found |= {f"{unit['name']}.service": unit for unit in json.loads(path.read_text())["units"]}
        except (OSError, ValueError, KeyError):
            continue
    return found


def _active() -> str:
    return paths.ACTIVE.readlink().name if paths.ACTIVE.is_symlink() else ""


def services() -> list[str]:
    """Names of the services of all releases kept on this host."""
    return sorted(units())
