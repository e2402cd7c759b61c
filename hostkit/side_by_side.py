"""Asks many things at once, each with a time limit; one that hangs is left behind, and what it said by then is kept."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Say = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """One piece of evidence, told line by line, for `file`; parts may share one. limit_s in seconds."""

    name: str
    file: str
    limit_s: float
    tell: Callable[[Say], None]


@dataclass
class Taken:
    """A part under way: what it has said so far, and what kept it from saying more."""

    part: Part
    said: list[str] = field(default_factory=list)
    problem: str | None = None
    took_s: float | None = None

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.part.tell(self.said.append)
        except Exception as problem:  # evidence that cannot be had must not keep the rest from being taken
            self.problem = f"{type(problem).__name__}: {problem}"
        self.took_s = round(time.monotonic() - began, 2)

    @property
    def why_left_out(self) -> str | None:
        """None where the part said all that it had to say."""
        return f"did not end within its {self.part.limit_s} s" if self.took_s is None else self.problem


def take(parts: Iterable[Part], deadline: float) -> list[Taken]:
    """Let all parts run side by side, each up to its limit and all up to the deadline (time.monotonic())."""
    runs = [Taken(part) for part in parts]
    began = time.monotonic()
    for run, thread in [(run, run.start()) for run in runs]:
        thread.join(max(0.0, min(deadline, began + run.part.limit_s) - time.monotonic()))
    return runs
