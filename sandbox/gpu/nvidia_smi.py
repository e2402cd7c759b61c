"""Stand-in for nvidia-smi: the questions that provisioning asks, in the real tool's words and statuses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.gpu import cards as reading
from sandbox.gpu import query, screens, topology
from sandbox.gpu.cards import Card
from sandbox.gpu.state import State

# The tool's own statuses, as its manual lists them.
BAD_ARGUMENT, NO_DEVICE, NO_DRIVER = 2, 6, 9
SHORT = {"-i": "--id", "-L": "--list-gpus", "-q": "--query", "-m": "--matrix", "-d": "--display"}
SWITCHES = {"--list-gpus", "--query", "--matrix"}
VALUED = {"--id", "--query-gpu", "--query-compute-apps", "--format", "-p2p", "--display"}
CONFUSED = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."


class Refused(Exception):
    """The call cannot be answered: what the tool prints, and its status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Call:
    """A parsed command line: the word `topo` or nothing, and options with their values."""

    topo: bool
    options: dict[str, str]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Call:
        """Take both `--option=value` and `--option value`. Raises Refused."""
        words = list(arguments)
        topo = words[:1] == ["topo"]
        words = words[1:] if topo else words
        options: dict[str, str] = {}
        while words:
            name, joined, value = words.pop(0).partition("=")
            name = SHORT.get(name, name)
            if name in VALUED and not joined:
                value = words.pop(0) if words else ""
            if name not in SWITCHES | VALUED or (name in VALUED and not value):
                raise Refused(CONFUSED, BAD_ARGUMENT)
            options[name] = value
        return cls(topo, options)


def main(arguments: Sequence[str]) -> int:
    """Answer one call and return the exit status."""
    try:
        for line in answer(Call.parse(arguments), State.load()):
            print(line)
    except Refused as refusal:
        print(refusal)
        return refusal.status
    except query.UnknownField as unknown:
        print(f'Field "{unknown}" is not a valid field to query.\n')
        return BAD_ARGUMENT
    return 0


def answer(call: Call, state: State) -> list[str]:
    """Return the lines of the answer. Raises Refused, query.UnknownField."""
    time.sleep(state.delay_s)
    if state.failure is not None:
        raise Refused(state.failure, NO_DRIVER)
    present = reading.read(state)
    chosen = _chosen(present, call.options.get("--id", ""))
    return _topology(call, chosen) if call.topo else _report(call, state, present, chosen)


def _report(call: Call, state: State, present: Sequence[Card], chosen: Sequence[Card]) -> list[str]:
    options = call.options
    form = options.get("--format", "").split(",")
    if "--query-gpu" in options or "--query-compute-apps" in options:
        if form[0] != "csv":
            raise Refused(CONFUSED, BAD_ARGUMENT)
        if "--query-gpu" in options:
            return query.gpus(options["--query-gpu"], form, state, len(present), chosen)
        return query.processes(options["--query-compute-apps"], form, state, chosen)
    if "--list-gpus" in options:
        return screens.listing(chosen)
    return screens.report(state, chosen, len(present)) if "--query" in options else screens.table(state, chosen)


def _topology(call: Call, cards: Sequence[Card]) -> list[str]:
    if "--matrix" in call.options:
        return topology.matrix(cards)
    if call.options.get("-p2p") in ("r", "w"):
        return topology.peers(cards)
    raise Refused(CONFUSED, BAD_ARGUMENT)


def _chosen(cards: Sequence[Card], selectors: str) -> list[Card]:
    wanted = [selector.strip() for selector in selectors.split(",") if selector.strip()]
    chosen = [card for card in cards if not wanted or any(card.is_called(item) for item in wanted)]
    if not chosen:
        raise Refused("No devices were found", NO_DEVICE)
    return chosen
