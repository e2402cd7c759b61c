"""What is proven of a server that answers: that it copies exactly, how fast it is, what its log must and must not say.

All of it under load, since much of what goes wrong goes wrong only there.
"""

import re
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hostkit import client
from hostkit.client import Answer, Server

_WORD_BYTES = 6
_SPOKEN = re.compile(r"[\s`'\"*.]+")
_DECODE = re.compile(r"Decode batch")
_NO_GRAPH = re.compile(r"#running-req: (\d+),.*\bcuda graph: False")
_TOKENS_PER_STREAM = 96


class NotProven(Exception):
    """What was to be proven does not hold; the message is the evidence."""


def echo(server: Server, model: str, rule: dict[str, Any]) -> str:
    """Random identifiers come back verbatim, from many requests at once: silent corruption shows here first.

    rule: concurrency, requests, within_s (s for all). Raises NotProven.
    """
    words = [secrets.token_hex(_WORD_BYTES) for _ in range(rule["requests"])]
    began = time.monotonic()
    deadline = began + rule["within_s"]

    def copied(word: str) -> str | None:
        left = deadline - time.monotonic()
        if left <= 0:
            return f"{word} was not asked within {rule['within_s']} s"
        try:
            said = client.chat(server, model, f"Repeat exactly: {word}", left, max_tokens=256).text
        except client.WrongAnswer as problem:
            return f"{word}: {problem}"
        return None if _SPOKEN.sub("", said) == word else f"{word} came back as {said[:60]!r}"

    with ThreadPoolExecutor(rule["concurrency"]) as pool:
        wrong = [problem for problem in pool.map(copied, words) if problem]
    if wrong:
        raise NotProven(f"{len(wrong)} of {len(words)} identifiers wrong: {'; '.join(wrong[:3])}")
    took = time.monotonic() - began
    return f"{len(words)} identifiers, {rule['concurrency']} at once, all verbatim in {took:.1f} s"


def speed(server: Server, model: str, streams: int, tokens: int, within_s: float) -> float:
    """tok/s of `streams` completions at once, `tokens` each, from the first request to the last token.

    Raises NotProven when one of them fails or gives other than as many tokens as were asked for.
    """

    def completion(number: int) -> Answer:
        question = f"Stream {number}: count upwards from {number} and do not stop."
        return client.chat(server, model, question, within_s, max_tokens=tokens, ignore_eos=True)

    began = time.monotonic()
    try:
        with ThreadPoolExecutor(streams) as pool:
            answers = list(pool.map(completion, range(1, streams + 1)))
    except client.WrongAnswer as problem:
        raise NotProven(f"with {streams} streams: {problem}") from None
    short = [answer.tokens for answer in answers if answer.tokens < tokens]
    if short:
        raise NotProven(f"{len(short)} of {streams} streams ended early, after {min(short)} of {tokens} tokens")
    return round(sum(answer.tokens for answer in answers) / (time.monotonic() - began), 1)


def tokens_per_stream(arguments: dict[str, Any]) -> int:
    """As many as two decode lines of the log take, and no fewer than a rate can be read off."""
    return max(_TOKENS_PER_STREAM, 2 * int(arguments.get("decode_log_interval") or 40) + 16)


def log(lines: Sequence[str], rule: dict[str, Any], largest_graph: int) -> str:
    """The log of this start says what the profile expects, nothing that it forbids, and decodes with CUDA graphs.

    rule: expect, forbid [regular expressions], cuda_graph (bool). A batch of more than `largest_graph` requests has
    none by design. Raises NotProven with all that is wrong.
    """
    problems = [f"no line has {one!r}" for one in rule["expect"] if not _first(one, lines)]
    problems += [f"{line.strip()!r}" for one in rule["forbid"] if (line := _first(one, lines))]
    decodes = [line for line in lines if _DECODE.search(line)]
    if rule["cuda_graph"]:
        problems += _without_graph(decodes, largest_graph)
    if problems:
        raise NotProven("; ".join(problems))
    return f"{len(rule['expect'])} expected lines there, {len(decodes)} decode lines as they should be"


def _without_graph(decodes: Sequence[str], largest_graph: int) -> list[str]:
    if not decodes:
        return ["no decode line was logged, so it is unknown whether CUDA graphs are used"]
    sizes = {int(found.group(1)) for line in decodes if (found := _NO_GRAPH.search(line))}
    without = sorted(size for size in sizes if size <= largest_graph)
    return [f"decoded without a CUDA graph at {', '.join(map(str, without))} running requests"] if without else []


def _first(pattern: str, lines: Sequence[str]) -> str | None:
    return next((line for line in lines if re.search(pattern, line)), None)


def near_limit(server: Server, model: str, limit_tokens: int, within_s: float) -> str:
    """A prompt of about nine tenths of what the server takes is answered with a token. Raises NotProven.

    Its length is found with the server's own count: one word is sent a hundred times, and its usage read.
    """
    per_word = client.prompt_tokens(server, model, _words(100), within_s) / 100
    count = int(limit_tokens * 0.9 / per_word)
    try:
        used = client.prompt_tokens(server, model, _words(count), within_s)
    except client.WrongAnswer as problem:
        raise NotProven(f"a prompt of about {int(count * per_word)} tokens: {problem}") from None
    return f"a prompt of {used} of {limit_tokens} tokens was answered"


def _words(count: int) -> str:
    return " ".join(["on"] * count)
