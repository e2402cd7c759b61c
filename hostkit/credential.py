"""The engine's credential on the host: put from standard input, read to ask the server, shown to nobody."""

import re
import sys
from contextlib import suppress
from pathlib import Path

from hostkit import atomic, paths

# As LoadCredential= of the unit names it.
_IN_UNIT = "engine.yaml"


def put_from_stdin(name: str) -> None:
    """Write what comes on standard input as this file, readable by root alone from its first moment."""
    paths.CREDENTIALS.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths.CREDENTIALS.chmod(0o700)
    atomic.write(paths.CREDENTIALS / name, sys.stdin.read(), mode=0o600)


def started_with(service: str, release: dict[str, object]) -> str | None:
    """The file with the key that the running process of the service knows, whatever today's key is."""
    own = Path("/run/credentials") / service / _IN_UNIT
    return str(own) if own.is_file() else str(release["credential"]) if release.get("credential") else None


def known_to(service: str, release: dict[str, object]) -> list[str]:
    """The key that the service was started with first, then today's; those that can be read."""
    keys = []
    for path in (started_with(service, release), release.get("credential")):
        with suppress(OSError):
            keys.append(api_key({"credential": path}))
    return [key for key in dict.fromkeys(keys) if key]


def api_key(release: dict[str, object]) -> str | None:
    """The key of a release that has one. Raises OSError when its file is gone."""
    path = release.get("credential")
    if not path:
        return None
    found = re.search(r'^api-key: "(.*)"$', Path(str(path)).read_text(), re.MULTILINE)
    return found.group(1) if found else None
