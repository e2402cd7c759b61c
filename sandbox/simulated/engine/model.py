"""The "model": it adds, repeats, says pong, and else talks on. What a request will be answered, token by token."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.simulated.engine.faults import Faults

WORDS = (" the", " quick", " brown", " fox", " jump", "s over", " the", " lazy", " dog", ".")
SUM = re.compile(r"(\d+)\s*([-+*x])\s*(\d+)")
REPEAT = re.compile(r"Repeat exactly:\s*(.+)", re.DOTALL)
SINGLE_WORD = re.compile(r"single word:\s*(\w+)")
ODD = "�ѯ%ʠ~^@ qzx{}|\\"


@dataclass(frozen=True)
class Request:
    """What the scheduler is sent. `by_client` is false for warm-up and health checks."""

    rid: str
    question: str
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool = False
    by_client: bool = True


def tokens_of(text: str) -> list[str]:
    """Cut a text into tokens of up to four characters, each with the white space before it."""
    return re.findall(r"\s*\S{1,4}|\s+", text)


def answer(request: Request, faults: Faults) -> Iterator[str]:
    """Yield the answer's tokens; where it ends before max_tokens, the end-of-sequence token is next."""
    said = _faulty(request.question, faults)
    if said is None:
        right = _right(request.question)
        said = _talk() if right is None else iter(tokens_of(right))
    return itertools.chain(said, _talk()) if request.ignore_eos else said


def corrupted(token: str) -> str:
    """What a race in a kernel makes of a token: of the same length, and never the same."""
    return "".join(chr(ord(sign) ^ 1) for sign in token)


def _talk() -> Iterator[str]:
    return itertools.cycle(WORDS)


def _right(question: str) -> str | None:
    if found := REPEAT.search(question):
        return found[1].strip()
    if found := SINGLE_WORD.search(question):
        return found[1]
    if found := SUM.search(question):
        left, sign, right = int(found[1]), found[2], int(found[3])
        return str(left + right if sign == "+" else left - right if sign == "-" else left * right)
    return None


def _faulty(question: str, faults: Faults) -> Iterator[str] | None:
    if "empty-answers" in faults:
        return iter(())
    if "repeat-token" in faults:
        return itertools.repeat(" the")
    if "nan" in faults:
        return itertools.repeat("!")
    if "garbage" in faults:
        dice = random.Random(question)  # noqa: S311 - the same question gets the same answer
        return iter(lambda: "".join(dice.choices(ODD, k=3)), None)
    return None
