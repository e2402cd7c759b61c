"""What a hub, its CDN or the way to it does wrong, on demand: rules in a JSON file, read again when it changes.

    [{"fault": "reset", "file": "model-00001-*", "first": 2, "after": 1000000}, {"fault": "429", "retry_after": 1}]

| fault | what happens | settings (with their defaults) |
|---|---|---|
| stall | after some bytes nothing more comes, the connection stays open | after (half of the answer), seconds (3600) |
| slow | a file comes at this rate | rate (100000 bytes/s) |
| reset | the connection is reset (RST) after some bytes | after |
| truncated | the connection is closed (FIN) after some bytes | after |
| wrong-bytes | 16 bytes of the file are flipped, its length is right | at (its middle) |
| wrong-length | the answer is whole in itself, but of another length than the file | by (-1000 bytes) |
| no-ranges | Range is ignored: 200 and the whole file | |
| expired | a signed link to the CDN has expired: 403 | |
| 429 | too many requests, with Retry-After | retry_after (1 s; null: no such header), on |
| 503 | service unavailable | retry_after (null), on |
| cut-listing | the first page of a listing (`page` entries) without a link to the next | page (1) |
| gated | files only with this token: 401 without one, 403 with another that starts with hf_ | token |

Each rule may be limited to a repository, to files (a pattern of fnmatch) and to the first N requests that meet it; the
count starts anew when the file changes. `on`: "api", "file" (resolve and CDN) or "any" (the default).
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

BODY = ("stall", "slow", "reset", "truncated", "wrong-bytes", "wrong-length", "no-ranges")
REFUSALS = ("429", "503")
KINDS = (*BODY, *REFUSALS, "expired", "cut-listing", "gated")


class BadRules(ValueError):
    """The JSON file is no list of rules; the message says what is wrong with it."""


@dataclass
class Rule:
    """One line of the file. `after`, `at` and `by` are bytes, `rate` bytes/s, `seconds` and `retry_after` s."""

    fault: str
    repository: str = "*"
    file: str = "*"
    first: int | None = None
    on: str = "any"
    after: int | None = None
    at: int | None = None
    by: int = -1000
    rate: int = 100_000
    seconds: float = 3600.0
    retry_after: int | None = field(default=None)
    page: int = 1
    token: str = ""
    met: int = field(default=0, init=False)

    def meets(self, kinds: tuple[str, ...], repository: str, file: str, on: str) -> bool:
        if self.fault not in kinds or self.on not in ("any", on):
            return False
        return fnmatchcase(repository, self.repository) and fnmatchcase(file, self.file)


class Faults:
    """The rules that hold now."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: object = None
        self._rules: list[Rule] = []

    def find(self, *kinds: str, repository: str, file: str = "", on: str = "any") -> Rule | None:
        """The first rule of these kinds that the request meets; it counts as one of its first N. Raises BadRules."""
        with self._lock:
            self._reread()
            for rule in self._rules:
                if rule.meets(kinds, repository, file, on) and (rule.first is None or rule.met < rule.first):
                    rule.met += 1
                    return rule
        return None

    def rule(self, kind: str, repository: str) -> Rule | None:
        """A rule of that kind for the repository, whatever the file; it does not count."""
        with self._lock:
            self._reread()
            return next(
                (rule for rule in self._rules if rule.fault == kind and fnmatchcase(repository, rule.repository)), None
            )

    def _reread(self) -> None:
        seen = self.path and _identity(self.path)
        if seen == self._seen:
            return
        self._rules = parse(self.path.read_text()) if self.path and seen else []
        self._seen = seen


def parse(text: str) -> list[Rule]:
    """Raises BadRules."""
    try:
        if not isinstance(json.loads(text), list):
            raise TypeError("no list")
        rules = [Rule(**{"retry_after": 1 if rule.get("fault") == "429" else None} | rule) for rule in json.loads(text)]
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRules(f"faults are a JSON list of rules, see sandbox/model_hub/faults.py: {error}") from None
    for rule in rules:
        if rule.fault not in KINDS:
            raise BadRules(f"{rule.fault!r} is none of the faults {', '.join(KINDS)}")
    return rules


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
