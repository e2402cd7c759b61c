"""The kinds of jobs: which function does the work, and what follows should its process die."""

import shlex
from pathlib import Path

from hostkit import activation, checkpoint, installer, jobs, operating, recovery, revisions, verify

_BODIES: dict[str, jobs.Job] = {
    "engine": installer.install,
    jobs.CHECKPOINT: checkpoint.bring,
    jobs.CHECK: verify.deep,
    "activation": activation.activate,
    "start": operating.start,
    "checkpoints": revisions.remove,
    "stop": operating.stop,
    "hold": operating.hold,
    "rollback": operating.roll_back,
    jobs.RECOVERY: recovery.recover,
}
# What leaves an intent behind when it is killed in the middle.
_ACTIVATES = ("activation", "start", "rollback")


def body(kind: str) -> jobs.Job:
    """Raises KeyError for a kind that does not exist."""
    return _BODIES[kind]


def after(kind: str) -> str | None:
    """The command line that sees to an intent left behind, by whatever end the job's process came to."""
    me = Path(__file__).resolve().parents[1]
    return shlex.join(["/usr/bin/python3", str(me), "recover"]) if kind in _ACTIVATES else None
