"""Which units are the playbook's own: those that a release made on this host, and no other.

A unit of somebody else may well be called sglang-something; it is never stopped, changed or removed.
"""

import json
from typing import Any

from hostkit import paths

_NOTES = "sglang-box started %n"


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
    """Names of the services of all releases kept on this host, and of those whose release somebody removed."""
    return sorted({*units(), *_made_by_a_release()})


def _made_by_a_release() -> set[str]:
    """Units that note what they are started from, as those of a release alone do."""
    found = set()
    for path in paths.UNITS.glob("sglang-*.service"):
        try:
            if path.is_file() and _NOTES in path.read_text(errors="replace"):
                found.add(path.name)
        except OSError:
            continue
    return found
