"""Says what to do when a host cannot be reached: pyinfra alone says only that it could not connect."""

import logging

from pyinfra import logger, state
from pyinfra.api.state import StateStage

REMEDY = "nothing was changed there; make `ssh` to it work from here, or mend its line in inventory.py"


def _add_remedy(record: logging.LogRecord) -> bool:
    """A logging filter: every error of the connect stage is a host that could not be reached."""
    if record.levelno == logging.ERROR and state.current_stage == StateStage.Connect:
        record.msg = f"{record.msg}; {REMEDY}"
    return True


def explain_failures() -> None:
    """Call once, from the inventory: it is read before the first connection."""
    logger.addFilter(_add_remedy)
