"""Progress and outcome of long work, as lines and a document that outlive the connection that asked for it."""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hostkit import atomic

# hostkit's exit codes: done; a fault; refused before any change; serving as before; stopped and not serving; another
# job holds the host; serving but not accepted.
OK, FAILED, REFUSED, ROLLED_BACK, STOPPED, LOCKED, NOT_ACCEPTED = range(7)


@dataclass(frozen=True)
class Verdict:
    """The outcome of one step; limit_s is the time that it had."""

    step: str
    ok: bool
    evidence: str
    limit_s: float


@dataclass(frozen=True)
class Result:
    """How a job ended. `code` is hostkit's exit code, `excerpt` the log lines that explain it."""

    code: int
    message: str
    verdicts: Sequence[Verdict] = ()
    excerpt: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        return {"schema": 1, **asdict(self), "verdicts": [asdict(verdict) for verdict in self.verdicts]}


@dataclass
class Progress:
    """Writes events of one job to `folder`/events.jsonl, and to standard output for the journal."""

    folder: Path
    started: float = field(default_factory=time.monotonic)

    def tell(
        self,
        stage: str,
        message: str,
        *,
        unit: str = "",
        percent: float | None = None,
        eta_s: float | None = None,
    ) -> None:
        """One event. percent 0 to 100; eta_s seconds to the end of the job, where a past run allows a guess."""
        event = {
            "t": time.time(),
            "unit": unit,
            "stage": stage,
            "percent": None if percent is None else round(percent, 1),
            "elapsed_s": round(time.monotonic() - self.started, 1),
            "eta_s": None if eta_s is None else round(max(0.0, eta_s), 1),
            "message": message,
        }
        print(f"{stage}: {message}", flush=True)
        with contextlib.suppress(OSError):  # a full disk keeps nobody from going on
            self._append(json.dumps(event) + "\n")

    def _append(self, line: str) -> None:
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)

    def finish(self, result: Result) -> None:
        print(f"ended with code {result.code}: {result.message}", flush=True)
        atomic.write(self.folder / "result.json", json.dumps(result.as_json()))


def read_events(folder: Path, after: int) -> tuple[list[dict[str, Any]], int]:
    """Events from line `after` on, and the number of the next line; a line that a full disk cut off is left out."""
    try:
        text = (folder / "events.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return [], after
    lines = text.split("\n")[:-1]
    found = []
    for line in lines[after:]:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found, max(after, len(lines))
