"""The API key: read from a file of the operator's, and from there never on a command line, in a log or in a release."""

import hashlib
import re
import stat
from functools import cached_property
from pathlib import Path

from serving import paths
from serving.problems import Problem, Refused

_KEY = re.compile(r"[A-Za-z0-9._-]{16,200}")
REMEDY = "make one: (umask 077; openssl rand -hex 24 >FILE)"


class ApiKey:
    """An API key by the file that holds it. Its text shows in no repr and is in no operation's arguments."""

    def __init__(self, file: Path) -> None:
        self.file = file
        problem = self._problem()
        if problem:
            raise Refused([Problem("group_data", "api_key_file", f"{file} {problem}", REMEDY)])

    def _problem(self) -> str | None:
        if not self.file.is_file():
            return "does not exist"
        if stat.S_IMODE(self.file.stat().st_mode) & 0o077:
            return "can be read by others (chmod 600)"
        return None if _KEY.fullmatch(self._text) else "holds no key of 16 to 200 letters, digits, . _ or -"

    @property
    def _text(self) -> str:
        return self.file.read_text(encoding="utf-8").strip()

    def content(self) -> str:
        """What the engine's `--config` file on the host holds."""
        return f'api-key: "{self._text}"\n'

    @property
    def name_on_host(self) -> str:
        """Named by its content: an earlier release keeps the key that it was started with."""
        return f"{self.sha256[:16]}.yaml"

    @property
    def path_on_host(self) -> str:
        return f"{paths.CREDENTIALS}/{self.name_on_host}"

    @cached_property
    def sha256(self) -> str:
        """Digest of the file on the host, by which another key is seen."""
        return hashlib.sha256(self.content().encode()).hexdigest()
