"""Why a run is refused, in words an operator can act on."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One reason not to start: where it is, which key, what is wrong, what to do instead."""

    where: str
    key: str
    what: str
    remedy: str

    def __str__(self) -> str:
        subject = f"{self.where}: {self.key}" if self.key else self.where
        return f"{subject}: {self.what}; {self.remedy}"


class Refused(Exception):
    """Raised before the first change, with every problem found and not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(dict.fromkeys(problems))
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"refused, nothing was changed:\n{lines}")


def nearest(word: str, words: Iterable[str]) -> str:
    """The names closest to `word`, as the tail of a remedy: 'did you mean a, b?' or all of a short list."""
    known = sorted(words)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.55)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"known: {', '.join(known)}" if len(known) <= 12 else "no similar name is known"
