"""Whether this machine went down as it should: a mark stays on disk while it is up, and goes at a shutdown.

After another end, by a power cut or a crash, what was on its way to a disk may not have got there. The server starts
all the same, from files that have not changed by their stamp; every byte of them is checked behind it.
"""

import json
from pathlib import Path

from hostkit import atomic, intent, jobs, paths, release

_MARK = paths.STATE / "up.json"


def came_up() -> str:
    """At boot: leave the mark, and have the checkpoint checked where one was left. Returns what was done, in a line."""
    unclean = _was_left()
    atomic.write(_MARK, json.dumps({"boot": intent.boot_id()}))
    folder = _checkpoint() if unclean else None
    if folder is None:
        return "this machine was shut down as it should" if not unclean else "no checkpoint serves"
    jobs.start(jobs.CHECK, {"folder": str(folder), "behind_servers": True}, by="the host itself")
    return f"this machine was not shut down: every byte of {folder} is checked"


def goes_down() -> None:
    """At a shutdown: take the mark away, unless a check is cut off by it, which then begins anew."""
    if not jobs.running(jobs.CHECK):
        _MARK.unlink(missing_ok=True)
        atomic.sync_folder(_MARK.parent)


def _was_left() -> bool:
    try:
        return not intent.is_of_this_boot(json.loads(_MARK.read_text()))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError):  # half written, by a file system that lost it
        return True


def _checkpoint() -> Path | None:
    """The folder of the release that serves."""
    try:
        return Path(release.load(release.active() or "")["checkpoint"]["folder"])
    except release.Damaged:
        return None
