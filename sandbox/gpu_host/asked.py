"""What a client sees of the server meanwhile: whether it answers, and whether a long stream comes to its end."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

import requests

ENTRY = "http://127.0.0.1:30000"


def healthy() -> bool:
    """Whether /health says 200; it takes a second, as it has a token made."""
    try:
        return requests.get(f"{ENTRY}/health", timeout=25).status_code == 200
    except requests.RequestException:
        return False


def seconds_until_healthy(limit_s: float) -> float | None:
    """None when the limit passes first."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if healthy():
            return round(time.monotonic() - began, 1)
        time.sleep(0.2)
    return None


def server_info() -> str:
    """What the server says of itself, as text; of a failure its message."""
    try:
        return requests.get(f"{ENTRY}/server_info", timeout=20).text
    except requests.RequestException as problem:
        return str(problem)


@dataclass
class Stream:
    """A streamed completion: how many pieces came, whether it was ended as it should, and after how long (s)."""

    wanted_tokens: int
    pieces: int = 0
    tokens: int = 0
    finished: str = ""
    done: bool = False
    seconds: float = 0.0
    problem: str = ""

    @property
    def whole(self) -> bool:
        return self.done and not self.problem and self.tokens >= self.wanted_tokens

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "whole": self.whole}


class LongAnswer(threading.Thread):
    """Asks for a long answer, and reads it to its end."""

    def __init__(self, tokens: int) -> None:
        super().__init__(daemon=True)
        self.stream = Stream(tokens)
        self.under_way = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        try:
            self._read()
        except (requests.RequestException, ValueError, KeyError) as problem:
            self.stream.problem = f"{type(problem).__name__}: {problem}"
        self.stream.seconds = round(time.monotonic() - began, 2)
        self.under_way.set()

    def _read(self) -> None:
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Count and do not stop."}],
            "max_tokens": self.stream.wanted_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with requests.post(f"{ENTRY}/v1/chat/completions", json=body, stream=True, timeout=120) as reply:
            reply.raise_for_status()
            for line in reply.iter_lines():
                if line.startswith(b"data: "):
                    self._take(line.removeprefix(b"data: ").decode())

    def _take(self, text: str) -> None:
        if text == "[DONE]":
            self.stream.done = True
            return
        piece = json.loads(text)
        for choice in piece.get("choices", []):
            self.stream.pieces += 1
            self.stream.finished = choice.get("finish_reason") or self.stream.finished
        self.stream.tokens = (piece.get("usage") or {}).get("completion_tokens", self.stream.tokens)
        if self.stream.pieces >= 5:
            self.under_way.set()
