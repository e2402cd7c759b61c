"""Which units are the playbook's own: those that a release on this host names, and no other.

A unit of somebody else may well be called sglang-something; it is never stopped, changed or removed.
"""

import json

from hostkit import paths


def services() -> list[str]:
    """Names of the services of all releases kept on this host."""
    found: set[str] = set()
    for path in paths.RELEASES.glob("*/release.json"):
        try:
            units = json.loads(path.read_text())["units"]
        except (OSError, ValueError, KeyError):
            continue
        found |= {f"{unit['name']}.service" for unit in units}
    return sorted(found)
