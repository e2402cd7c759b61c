"""The scheduler process: batches what it is sent and makes a token for each request in every step."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from sandbox.simulated.engine import resolved
from sandbox.simulated.engine.batch_log import BatchLog
from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.loading import OUT_OF_MEMORY, SchedulerFailed, load
from sandbox.simulated.engine.log import log_exception
from sandbox.simulated.engine.model import Request, answer, corrupted


@dataclass(frozen=True)
class Token:
    """One step of one request. `finish` is "stop" or "length" with its last; the end of sequence has no text."""

    rid: str
    text: str
    finish: str | None


@dataclass
class Running:
    request: Request
    tokens: Iterator[str]
    done: int = 0

    def next(self) -> Token:
        self.done += 1
        text = next(self.tokens, None)
        if text is None:
            return Token(self.request.rid, "", "stop")
        return Token(self.request.rid, text, "length" if self.done >= self.request.max_tokens else None)


def run(arguments: Mapping[str, Any], faults: Faults, rank: int, inbox: Connection, outbox: Connection) -> NoReturn:
    """Load, say so, and schedule for ever. What fails ends the whole server, as in the real one: by SIGQUIT."""
    try:
        load(arguments, faults, is_first_rank=rank == 0)
        inbox.send("ready")
        Scheduler(arguments, faults, inbox, outbox).loop()
    except SchedulerFailed as failure:
        log_exception(str(failure))
        os.kill(os.getppid(), signal.SIGQUIT)
    while True:
        signal.pause()  # until the main process ends its tree


class Scheduler:
    """Requests in the order they came, at most max_running_requests at a time."""

    def __init__(self, arguments: Mapping[str, Any], faults: Faults, inbox: Connection, outbox: Connection) -> None:
        self._faults = faults
        self._inbox, self._outbox = inbox, outbox
        self._most_running = resolved.max_running_requests(arguments)
        self._log = BatchLog(arguments, faults)
        self._waiting: list[Request] = []
        self._running: list[Running] = []
        self._clients = 0
        self._fails_at: float | None = None

    def loop(self) -> NoReturn:
        while True:
            self._receive()
            self._prefill()
            self._decode()

    def _receive(self) -> None:
        """Take what has come; with nothing to do, wait for it."""
        has_room = len(self._running) < self._most_running
        idle = not (self._waiting and has_room) and not any(map(self._decodes, self._running))
        while self._inbox.poll(self._patience() if idle else 0):
            idle = False
            message = self._inbox.recv()
            if isinstance(message, Request):
                self._accept(message)
            else:
                self._abort(message)
        if self._fails_at and time.monotonic() >= self._fails_at:
            raise SchedulerFailed(f"torch.OutOfMemoryError: {OUT_OF_MEMORY}")

    def _patience(self) -> float | None:
        return None if self._fails_at is None else max(0.0, self._fails_at - time.monotonic())

    def _accept(self, request: Request) -> None:
        self._clients += request.by_client
        if self._clients >= (self._faults.number("die-at-request") or float("inf")):
            raise SchedulerFailed(f"torch.OutOfMemoryError: {OUT_OF_MEMORY}")
        self._waiting.append(request)
        allowed = self._faults.number("wedge-after")
        while allowed is not None and self._clients > allowed:
            signal.pause()

    def _abort(self, rid: str) -> None:
        self._waiting = [request for request in self._waiting if request.rid != rid]
        self._running = [running for running in self._running if running.request.rid != rid]

    def _prefill(self) -> None:
        """Start what has come, as far as there is room: the first token of a request is made here."""
        room = self._most_running - len(self._running)
        fresh = [Running(request, answer(request, self._faults)) for request in self._waiting[:room]]
        if not fresh:
            return
        self._waiting = self._waiting[room:]
        tokens = sum(running.request.prompt_tokens for running in fresh)
        running, waiting = len(self._running), len(self._waiting)
        self._log.prefill(len(fresh), tokens, running=running, waiting=waiting, used=self._used())
        self._running += fresh
        if first := [running for running in fresh if self._decodes(running)]:
            self._step(first)

    def _decode(self) -> None:
        batch = [running for running in self._running if self._decodes(running)]
        if batch:
            self._step(batch)
            self._log.decode(len(batch), waiting=len(self._waiting), used=self._used())

    def _step(self, batch: list[Running]) -> None:
        """Make one token for each, and take as long as that would."""
        time.sleep(1 / self._faults.tokens_per_s)
        garbled = "corrupt-concurrent" in self._faults and len(self._running) > 1
        tokens = [running.next() for running in batch]
        self._outbox.send([Token(one.rid, corrupted(one.text), one.finish) if garbled else one for one in tokens])
        ended = {token.rid for token in tokens if token.finish}
        self._running = [running for running in self._running if running.request.rid not in ended]
        if ended:
            self._note_ready()

    def _decodes(self, running: Running) -> bool:
        return not (running.request.by_client and "no-tokens" in self._faults)

    def _note_ready(self) -> None:
        """The first answer of all is the warm-up's: from there counts what is due some time after it."""
        after = self._faults.number("die-after-ready")
        if after is not None and self._fails_at is None:
            self._fails_at = time.monotonic() + after

    def _used(self) -> int:
        return sum(running.request.prompt_tokens + running.done for running in self._running)
