"""Asks a server over HTTP, with limits of its own on every call.

With the standard library: it loads in a third of the time of `requests`, which every run would pay for, and it
never sends a question for this host to a proxy that the environment names.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

_NO_ANSWER = (OSError, HTTPException)


class WrongAnswer(Exception):
    """The server answered, but not what it should; the message says what came."""


@dataclass(frozen=True)
class Answer:
    """A streamed completion. first_s and total_s in seconds; tokens as the server's usage reports them."""

    text: str
    tokens: int
    first_s: float
    total_s: float


@dataclass(frozen=True)
class Server:
    """Where a server listens, and the key that it wants, which no repr shows."""

    base: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def status(server: Server, path: str, within_s: float) -> int | None:
    """HTTP status of a GET, None when nobody answers."""
    try:
        with _response(server, path, within_s) as response:
            return response.status
    except _NO_ANSWER:
        return None


def get_json(server: Server, path: str, within_s: float) -> Any:
    """The JSON of a GET. Raises WrongAnswer."""
    try:
        with _response(server, path, within_s) as response:
            if response.status != 200:
                raise WrongAnswer(f"{path}: HTTP {response.status} {response.reason}")
            return json.loads(response.read())
    except (*_NO_ANSWER, ValueError) as error:
        raise WrongAnswer(f"{path}: {error or type(error).__name__}") from None


def chat(server: Server, model: str, question: str, within_s: float, max_tokens: int = 512, **more: Any) -> Answer:
    """One streamed chat completion at temperature 0; `more` goes into the request as it is (ignore_eos, for one).

    Raises WrongAnswer when it fails or takes longer.
    """
    body = {
        **more,
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = time.monotonic()
    try:
        with _response(server, "/v1/chat/completions", within_s, body) as response:
            if response.status != 200:
                raise WrongAnswer(f"HTTP {response.status}: {response.read().decode(errors='replace')[:200]}")
            return _read(response, started, within_s)
    except _NO_ANSWER as error:
        raise WrongAnswer(f"no answer from {server.base}: {type(error).__name__}") from None


def prompt_tokens(server: Server, model: str, prompt: str, within_s: float) -> int:
    """Tokens of the prompt by the server's own count, when it has answered with one token. Raises WrongAnswer."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 1, "temperature": 0}
    try:
        with _response(server, "/v1/chat/completions", within_s, body) as response:
            if response.status != 200:
                raise WrongAnswer(f"HTTP {response.status}: {response.read().decode(errors='replace')[:200]}")
            return int(json.loads(response.read())["usage"]["prompt_tokens"])
    except (*_NO_ANSWER, ValueError, KeyError) as error:
        raise WrongAnswer(f"no answer from {server.base}: {type(error).__name__}") from None


def change(server: Server, method: str, path: str, within_s: float, body: Any = None) -> None:
    """A request that changes something there and has no answer to read. Raises WrongAnswer."""
    try:
        with _response(server, path, within_s, body, method) as response:
            if not 200 <= response.status < 300:
                said = response.read().decode(errors="replace")[:200]
                raise WrongAnswer(f"{method} {path}: HTTP {response.status} {said}")
    except _NO_ANSWER as error:
        raise WrongAnswer(f"{method} {path}: {error or type(error).__name__}") from None


@contextmanager
def _response(
    server: Server, path: str, within_s: float, body: Any = None, method: str | None = None
) -> Iterator[HTTPResponse]:
    """The response to a GET, or to a POST of `body` as JSON; within_s limits each wait for the network."""
    connection = HTTPConnection(urlsplit(server.base).netloc, timeout=within_s)
    try:
        if body is None:
            connection.request(method or "GET", path, headers=server.headers)
        else:
            headers = {**server.headers, "Content-Type": "application/json"}
            connection.request(method or "POST", path, json.dumps(body), headers)
        yield connection.getresponse()
    finally:
        connection.close()


def _read(response: HTTPResponse, started: float, within_s: float) -> Answer:
    text, tokens, first_s = "", 0, 0.0
    for line in (raw.decode().strip() for raw in response):
        if time.monotonic() - started > within_s:
            raise WrongAnswer(f"no whole answer within {within_s:.0f} s, only {text[:80]!r}")
        if not line or not line.startswith("data:") or line == "data: [DONE]":
            continue
        chunk = json.loads(line.removeprefix("data:"))
        for choice in chunk.get("choices", []):
            text += choice["delta"].get("content") or ""
            first_s = first_s or time.monotonic() - started
        tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
    return Answer(text, tokens, round(first_s, 3), round(time.monotonic() - started, 3))


def ask(server: Server, model: str, gates: dict[str, Any], within_s: float) -> Answer:
    """Ask the profile's question. Raises WrongAnswer unless the answer is the expected one."""
    answer = chat(server, model, gates["question"], within_s)
    if answer.text.strip().rstrip(".") != gates["answer"]:
        raise WrongAnswer(f"{gates['question']!r} was answered {answer.text[:80]!r} instead of {gates['answer']!r}")
    return answer
