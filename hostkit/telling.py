"""Tells a webhook, or a command on this host, a message."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from hostkit import journal

_TRIES = 3
PAUSE_S = 2.0
_POST_S = 10.0
_COMMAND_S = 60.0


class NotTold(Exception):
    """Nobody could be told; the message holds no part of a webhook's URL but its host."""


def tell(setting: dict[str, Any], message: dict[str, Any]) -> str:
    """Tell the one that the setting names; says who that is. Raises NotTold."""
    if "command" in setting:
        return _run(setting["command"], message)
    return _post(setting["webhook"], message)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET without the message, whose 200 would say nothing."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, message: dict[str, Any]) -> str:
    """`text` is what chat services show of a message. The controller has checked that the URL is of HTTP(S)."""
    body, header = json.dumps(message).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, header)  # noqa: S310
    opener = urllib.request.build_opener(_NoRedirect)
    host, problem = urlsplit(url).hostname, ""
    for attempt in range(_TRIES):
        time.sleep(PAUSE_S * attempt)
        try:
            with opener.open(request, timeout=_POST_S) as response:
                return f"the webhook at {host} (HTTP {response.status})"
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code}"
        except OSError as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        except HTTPException as error:  # its text may hold the URL
            problem = type(error).__name__
    raise NotTold(f"the webhook at {host} did not take it, {_TRIES} tries: {problem}")


def _run(command: list[str], message: dict[str, Any]) -> str:
    """The command gets the message on standard input, and each field as NOTIFY_<FIELD>."""
    fields = {f"NOTIFY_{key.upper()}": "" if value is None else str(value) for key, value in message.items()}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(message),
            env={**os.environ, **fields},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_COMMAND_S,
            check=False,
        )
    except OSError as problem:
        raise NotTold(f"{command[0]} could not be run: {problem.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NotTold(f"{command[0]} did not end within {_COMMAND_S:.0f} s") from None
    if done.returncode != 0:
        raise NotTold(f"{command[0]} ended with {done.returncode}: {journal.cause(done.stdout.splitlines())}")
    return command[0]
