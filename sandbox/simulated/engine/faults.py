"""Faults and pace of the simulated engine, read once at its start.

/etc/sandbox-engine.json (another path: $SANDBOX_ENGINE) may say

    {"fault": "wedge-after:3", "when": {"max_running_requests": 8}, "tokens_per_s": 500}

and SANDBOX_ENGINE_FAULT=wedge-after:3 in a unit's environment the same of that unit alone. Several faults are
separated by commas. With `when`, the file's faults are those of a server whose arguments have these values: one
release and not the other. Without file and variable there is none. Memory that stays in use after its process is
gone is no fault of an engine: `host.set_gpus(release_s=...)`. A port that is taken needs none either.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE, DEFAULT_FILE = "SANDBOX_ENGINE", "/etc/sandbox-engine.json"
VARIABLE = "SANDBOX_ENGINE_FAULT"

FAULTS = {
    "exit": "exit:3 ends at once with status 3",
    "slow-load": "slow-load:20 loads for 20 s more, reads its checkpoint and computes all the while",
    "stuck-loading": "never gets past `Load weight begin`, without CPU time",
    "die-loading": "out of GPU memory while loading weights",
    "die-capturing": "out of GPU memory while capturing CUDA graphs",
    "die-after-ready": "die-after-ready:5 a scheduler fails 5 s after the server was ready",
    "die-at-request": "die-at-request:3 a scheduler fails at the 3rd request of a client",
    "wedge-after": "wedge-after:3 after 3 requests of clients nothing is answered; /health is 503 after its limit",
    "no-tokens": "/health is 200, but no client's request ever gets a token",
    "empty-answers": "answers are whole and have no text",
    "garbage": "answers are random characters",
    "repeat-token": "answers are one word, again and again",
    "nan": "answers are `!!!!`: logits that are not numbers make token 0 win",
    "corrupt-concurrent": "answers are wrong as soon as more than one request runs",
    "wrong-model": "wrong-model:other /v1/models lists another name",
    "wrong-argument": "wrong-argument:tp_size=2 /server_info shows another value than was given",
    "no-cuda-graph": "decoding runs without CUDA graphs, as only its log says",
    "slow": "slow:5 decodes 5 tokens/s for each request",
    "ignore-sigterm": "goes on after SIGTERM, all of its processes",
    "orphan-scheduler": "SIGTERM ends the main process at once; schedulers live on and hold their GPU memory",
}


@dataclass(frozen=True)
class Pace:
    """How fast things go. Rates in 1/s, the rest in s; the real engine's values are in brackets."""

    tokens_per_s: float = 2000.0
    #: /health looks so often for its token (1)
    health_s: float = 0.05
    #: from the open port to the first token (about 2)
    warm_up_s: float = 0.1
    #: from a child's death to the end of the tree (5)
    crash_s: float = 0.2
    #: while stopping, running requests are counted so often (5)
    drain_s: float = 0.1


@dataclass(frozen=True)
class Faults:
    """The faults in force by name, each with its value, "" where it has none."""

    active: Mapping[str, str]
    pace: Pace

    @classmethod
    def load(cls, arguments: Mapping[str, Any]) -> Faults:
        """Read file and variable. Raises ValueError for a fault and TypeError for a pace that is not known."""
        path = Path(os.environ.get(FILE, DEFAULT_FILE))
        told = json.loads(path.read_text()) if path.exists() else {}
        fault, when = told.pop("fault", ""), told.pop("when", {})
        meant = all(arguments[name] == value for name, value in when.items())
        pace = Pace(**told)
        return cls({**_parsed(fault if meant else ""), **_parsed(os.environ.get(VARIABLE, ""))}, pace)

    def __contains__(self, name: str) -> bool:
        assert name in FAULTS, name
        return name in self.active

    def number(self, name: str) -> float | None:
        """Return a fault's number, None where it is not in force."""
        return float(self.active[name]) if name in self else None

    @property
    def tokens_per_s(self) -> float:
        return self.number("slow") or self.pace.tokens_per_s


def _parsed(text: str) -> dict[str, str]:
    named = dict(one.partition(":")[::2] for one in text.split(",") if one)
    if unknown := named.keys() - FAULTS:
        raise ValueError(f"unknown faults {sorted(unknown)}: known are {', '.join(FAULTS)}")
    return named
