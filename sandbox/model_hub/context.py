"""What every connection of one hub shares."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sandbox.model_hub.faults import Faults
from sandbox.model_hub.pace import Pace
from sandbox.model_hub.repository import Store


@dataclass
class Context:
    """Settings and state. `delay_s` is one round trip, `link_s` how long a link to the CDN holds (both s)."""

    store: Store
    faults: Faults
    pace: Pace
    delay_s: float = 0.0
    link_s: float = 3600.0
    page: int = 1000  # entries of a listing, as the hub's own
    log_file: Path | None = None
    cdn: str = ""  # http://ADDRESS:PORT
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _open: int = 0

    def log(self, line: dict[str, Any]) -> None:
        """One line of JSON for a request that has been answered."""
        if self.log_file is None:
            return
        with self._lock, self.log_file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request as one being answered."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def settle(self, limit_s: float) -> None:
        """Wait until the caller's own request is the only one being answered, or until the limit (s)."""
        with self._changed:
            self._changed.wait_for(lambda: self._open <= 1, limit_s)

    def _count(self, step: int) -> None:
        with self._changed:
            self._open += step
            self._changed.notify_all()

    def signed(self, path: str) -> str:
        """A path of the CDN with a signature that expires."""
        expires = str(int(time.time() + self.link_s))
        return f"{quote(path)}?Expires={expires}&Signature={self._signature(path, expires)}"

    def is_valid(self, path: str, expires: str, signature: str) -> bool:
        right = hmac.compare_digest(self._signature(path, expires), signature)
        return right and float(expires) > time.time()

    def _signature(self, path: str, expires: str) -> str:
        return hmac.new(self._key, f"{path}?{expires}".encode(), hashlib.sha256).hexdigest()


def make_context(folder: Path, state: Path | None, *, rate: float, **settings: Any) -> Context:
    """A hub over a folder. `state` holds faults.json and requests.jsonl; `rate` is bytes/s, 0 without limit."""
    if state:
        os.makedirs(state, exist_ok=True)
    faults = Faults(state / "faults.json" if state else None)
    return Context(Store(folder), faults, Pace(rate), log_file=state and state / "requests.jsonl", **settings)
