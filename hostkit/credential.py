"""The engine's credential on the host: put from standard input, read to ask the server, shown to nobody."""

import re
import sys
from pathlib import Path

from hostkit import atomic, paths


def put_from_stdin(name: str) -> None:
    """Write what comes on standard input as this file, readable by root alone from its first moment."""
    paths.CREDENTIALS.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths.CREDENTIALS.chmod(0o700)
    atomic.write(paths.CREDENTIALS / name, sys.stdin.read(), mode=0o600)


def api_key(release: dict[str, object]) -> str | None:
    """The key of a release that has one. Raises OSError when its file is gone."""
    path = release.get("credential")
    if not path:
        return None
    found = re.search(r'^api-key: "(.*)"$', Path(str(path)).read_text(), re.MULTILINE)
    return found.group(1) if found else None
