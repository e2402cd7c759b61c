"""Servers that were started from a file that turned out bad: what they hold in memory is bad, though the file is not.

A file that was damaged after a server had started is none of its business. The time of its last change (ctime) tells
the two apart; unlike mtime nobody sets it by hand.
"""

from pathlib import Path

from hostkit import paths, release, systemd


def disown(folder: Path, changed: list[float]) -> list[str]:
    """Services that run from the folder, and were started after one of these changes (s since the epoch).

    The note of what they were started from is taken away: a server of unknown origin is started anew by the next run.
    """
    found = []
    for service in _services(folder) if changed else ():
        note = paths.RUN / f"{service.removesuffix('.service')}.json"
        if note.exists() and note.stat().st_mtime >= min(changed):
            note.unlink()
            found.append(service)
    return found


def _services(folder: Path) -> list[str]:
    """Those of the active release that run, where it has its checkpoint there."""
    try:
        document = release.load(release.active() or "")
    except release.Damaged:
        return []
    if document["checkpoint"]["folder"] != str(folder):
        return []
    units = systemd.show(*release.services(document))
    return [name for name, unit in units.items() if unit.active == "active"]
