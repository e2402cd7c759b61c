"""Requests under way in the main process: sent to the scheduler, their tokens handed to who waits for them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import Empty, SimpleQueue

from sandbox.simulated.engine.model import Request
from sandbox.simulated.engine.processes import Tree
from sandbox.simulated.engine.scheduler import Token

LOOK_S = 0.1
STARTING, UP, UNHEALTHY = "Starting", "Up", "UnHealthy"


class Manager:
    """What the real engine's TokenizerManager is outwardly: status, running requests, and the drain's flag."""

    def __init__(self, tree: Tree) -> None:
        self.status = STARTING
        self.stopping = False
        self.last_receive = 0.0
        self.generated_tokens = self.prompt_tokens = self.finished_requests = 0
        self._tree = tree
        self._open: dict[str, SimpleQueue[Token]] = {}
        self._lock = threading.Lock()  # threads of several connections write into one pipe
        threading.Thread(target=self._receive, daemon=True).start()

    @property
    def running(self) -> list[str]:
        """Ids of the requests that have no whole answer yet."""
        return list(self._open)

    @contextmanager
    def submit(self, request: Request, is_gone: Callable[[], bool] = bool) -> Iterator[Iterator[Token]]:
        """Give the tokens of the request as they come. Left by an error, the request is aborted.

        Raises ConnectionAbortedError in the iterator once `is_gone` says that nobody waits for it.
        """
        request = replace(request, rid=request.rid or uuid.uuid4().hex)
        queue = self._open[request.rid] = SimpleQueue()
        try:
            self._send(request)
            yield _tokens(queue, is_gone)
            if request.by_client:
                self.finished_requests += 1
                self.prompt_tokens += request.prompt_tokens
        except BaseException:
            self._send(request.rid)
            raise
        finally:
            del self._open[request.rid]

    def _send(self, message: Request | str) -> None:
        with self._lock:
            self._tree.to_scheduler.send(message)

    def _receive(self) -> None:
        while tokens := self._next_tokens():
            self.last_receive = time.monotonic()
            self.generated_tokens += len(tokens)
            for token in tokens:
                if queue := self._open.get(token.rid):
                    queue.put(token)

    def _next_tokens(self) -> list[Token]:
        """Return a step's tokens, [] once the detokenizer is gone."""
        try:
            return list(self._tree.from_detokenizer.recv())
        except EOFError:
            return []


def _tokens(queue: SimpleQueue[Token], is_gone: Callable[[], bool]) -> Iterator[Token]:
    while True:
        try:
            token = queue.get(timeout=LOOK_S)
        except Empty:
            if is_gone():
                raise ConnectionAbortedError from None
            continue
        yield token
        if token.finish:
            return
