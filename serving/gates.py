"""The gates of a profile: what must hold before a start is called good."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from serving.files import Strict


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression ({error})") from None
    return text


Pattern = Annotated[str, AfterValidator(_regular_expression)]


class Echo(Strict):
    """Random identifiers to be repeated verbatim: how many, how many at once, and the time (s) for all of them.

    200 at a concurrency of 12 found silently corrupted output within seconds (sglang #33800).
    """

    requests: int = Field(default=48, gt=0)
    concurrency: int = Field(default=12, gt=0)
    within_s: int = Field(default=60, gt=0)


class Log(Strict):
    """What the log of a start must say (regular expressions), and must not; whether decoding uses CUDA graphs."""

    expect: tuple[Pattern, ...] = ()
    forbid: tuple[Pattern, ...] = ()
    cuda_graph: bool = True


class Gates(Strict):
    """What must hold before a start is called good. A change here is no new release and restarts nothing.

    Times in s. gpus_free_within_s: for the memory of a stopped server to come back. stuck_after_s: a start that for so
    long neither logs, nor computes, nor reads from disk is given up. tok_s_floor: least tok/s by number of streams; a
    server below it is kept, and not accepted.
    """

    question: str
    answer: str
    answer_within_s: int = Field(default=60, gt=0)
    first_start_within_s: int = Field(default=2700, gt=0)
    start_within_s: int = Field(default=1200, gt=0)
    gpus_free_within_s: int = Field(default=90, gt=0)
    stuck_after_s: int = Field(default=300, gt=0)
    settle_s: int = Field(default=2, ge=0)
    echo: Echo = Echo()
    near_limit_within_s: int = Field(default=300, gt=0)
    tok_s_floor: dict[Annotated[int, Field(gt=0)], Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    log: Log = Log()
