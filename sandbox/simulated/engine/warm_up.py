"""The first request, which the server sends itself; only when it is answered is the server healthy."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

from sandbox.simulated.engine.log import log
from sandbox.simulated.engine.manager import UP, Manager

QUESTION = {"text": "The capital city of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def warm_up(in_force: Mapping[str, Any], delay_s: float, manager: Manager) -> None:
    """Ask for some tokens over HTTP, `delay_s` after the port was opened."""
    time.sleep(delay_s)
    _ask(in_force, "GET", "/model_info")
    _ask(in_force, "POST", "/generate", json.dumps(QUESTION))
    _ask(in_force, "POST", "/freeze_gc")
    manager.status = UP
    log("The server is fired up and ready to roll!")


def _ask(in_force: Mapping[str, Any], method: str, path: str, body: str | None = None) -> None:
    key = in_force["api_key"]
    connection = HTTPConnection(EVERYWHERE.get(in_force["host"], in_force["host"]), in_force["port"])
    connection.request(method, path, body, {"Authorization": f"Bearer {key}"} if key else {})
    connection.getresponse().read()
    connection.close()
