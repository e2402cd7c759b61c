"""Secrets: read from the operator's files, and from there never on a command line, in a log or in a release."""

import hashlib
import json
import re
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from serving import paths
from serving.problems import Problem, Refused

_TOKEN = re.compile(r"[!-~]{8,500}")
_KEY = re.compile(r"[A-Za-z0-9._-]{16,200}")
REMEDY = "make one: (umask 077; openssl rand -hex 24 >FILE)"
_URL = re.compile(r"https?://[^\s/?#@]+([/?][!-~]*)?")


class Secret(ABC):
    """A file of root's on a host. Its text shows in no repr and is in no operation's arguments."""

    @property
    @abstractmethod
    def path_on_host(self) -> str: ...

    @property
    @abstractmethod
    def command(self) -> tuple[str, ...]:
        """The words of hostkit's command that writes the file from standard input."""

    @abstractmethod
    def content(self) -> str:
        """What the file on the host holds."""

    @cached_property
    def sha256(self) -> str:
        """Digest of the file on the host, by which another content is seen."""
        return hashlib.sha256(self.content().encode()).hexdigest()


class _OfAFile(Secret):
    """One word in a file of the operator's, which only he can read. Raises Refused when it is not so."""

    setting: str
    pattern: re.Pattern[str]
    holds: str
    remedy: str

    def __init__(self, file: Path) -> None:
        self.file = file
        problem = self._problem()
        if problem:
            raise Refused([Problem("group_data", self.setting, f"{file} {problem}", self.remedy)])

    def _problem(self) -> str | None:
        if not self.file.is_file():
            return "does not exist"
        if stat.S_IMODE(self.file.stat().st_mode) & 0o077:
            return "can be read by others (chmod 600)"
        try:
            text = self._text
        except (OSError, UnicodeDecodeError) as error:
            return f"cannot be read ({type(error).__name__})"
        return None if self.pattern.fullmatch(text) else f"holds no {self.holds}"

    @property
    def _text(self) -> str:
        return self.file.read_text(encoding="utf-8").strip()


class ApiKey(_OfAFile):
    """An API key by the file that holds it: the engine's `--config` file on the host."""

    setting, pattern, holds, remedy = "api_key_file", _KEY, "key of 16 to 200 letters, digits, . _ or -", REMEDY

    @property
    def path_on_host(self) -> str:
        return f"{paths.CREDENTIALS}/{self.name_on_host}"

    @property
    def command(self) -> tuple[str, ...]:
        return "put-credential", self.name_on_host

    @property
    def name_on_host(self) -> str:
        """Named by its content: an earlier release keeps the key that it was started with."""
        return f"{self.sha256[:16]}.yaml"

    def content(self) -> str:
        return f'api-key: "{self._text}"\n'


class HubToken(_OfAFile):
    """The token for gated repositories, by the file that holds it."""

    setting, pattern, holds = "hub_token_file", _TOKEN, "token (8 to 500 characters without a space)"
    remedy = "take one from your account on the hub: (umask 077; cat >FILE)"
    path_on_host = paths.HUB_TOKEN
    command = ("put-hub-token",)

    def content(self) -> str:
        return f"{self._text}\n"


@dataclass(frozen=True)
class Notify(Secret):
    """Who is told when a server fails: a webhook, whose URL is a secret, or a command on the host."""

    path_on_host = paths.NOTIFY
    command = ("put-notify",)
    _content: str = field(repr=False)

    @classmethod
    def of(cls, setting: Any) -> "Notify":
        """From the operator's setting. Raises ValueError, in words that hold nothing of its values."""
        match setting:
            case {"webhook": str(url)} if len(setting) == 1:
                if not _URL.fullmatch(url):
                    raise ValueError("the webhook is no URL of the form https://host/path")
            case {"command": [str(program), *words]} if len(setting) == 1 and all(isinstance(w, str) for w in words):
                if not program.startswith("/"):
                    raise ValueError("the command does not begin with an absolute path")
            case _:
                raise ValueError("is neither a webhook nor a command")
        return cls(json.dumps({"schema": 1, **setting}) + "\n")

    def content(self) -> str:
        return self._content
