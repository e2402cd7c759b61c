"""The endpoints that the playbook, its probes and the router ask."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sandbox.simulated.engine import chat, info, resolved
from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.log import log
from sandbox.simulated.engine.manager import STARTING, UNHEALTHY, UP, Manager
from sandbox.simulated.engine.model import Request, tokens_of
from sandbox.simulated.engine.server import Exchange, Reply

HEALTH_LIMIT = "SGLANG_HEALTH_CHECK_TIMEOUT"  # the real engine's own variable (s)


@dataclass(frozen=True)
class Endpoints:
    """What each path answers."""

    arguments: Mapping[str, Any]
    launch_command: str
    faults: Faults
    manager: Manager

    def routes(self) -> dict[tuple[str, str], Callable[[Exchange], None]]:
        found: dict[tuple[str, str], Callable[[Exchange], None]] = {
            ("GET", "/health"): self.health,
            ("GET", "/health_generate"): self.health,
            ("GET", "/ping"): lambda exchange: exchange.send(200),
            ("GET", "/v1/models"): self.models,
            ("GET", "/model_info"): self.model_info,
            ("GET", "/get_model_info"): self.model_info,
            ("GET", "/server_info"): self.server_info,
            ("GET", "/get_server_info"): self.server_info,
            ("POST", "/v1/chat/completions"): self.chat,
            ("POST", "/generate"): self.generate,
            ("POST", "/freeze_gc"): lambda exchange: exchange.send(200),
        }
        return found | ({("GET", "/metrics"): self.metrics} if self.arguments["enable_metrics"] else {})

    def health(self, exchange: Exchange) -> None:
        """200 once any token has come since the question, 503 when none did within the limit."""
        if self.manager.stopping:
            log("Health check request received during shutdown. Returning 503.")
        if self.manager.stopping or self.manager.status == STARTING:
            raise Reply(503)
        asked = time.monotonic()
        limit_s = float(os.environ.get(HEALTH_LIMIT, 20))
        with self.manager.submit(Request(f"HEALTH_CHECK_{uuid.uuid4().hex}", "", 1, 1, by_client=False)):
            while time.monotonic() < asked + limit_s:
                time.sleep(self.faults.pace.health_s)
                if self.manager.last_receive > asked:
                    self.manager.status = UP
                    return exchange.send(200)
        now = time.strftime("%H:%M:%S")
        log(
            f"Health check failed. Server couldn't get a response from detokenizer for last {limit_s:.0f} seconds. "
            f"tic start time: {now}. last_heartbeat time: {now}"
        )
        self.manager.status = UNHEALTHY
        raise Reply(503)

    def models(self, exchange: Exchange) -> None:
        name = self.faults.active.get("wrong-model") or self.arguments["served_model_name"]
        exchange.send_json(info.models(name, resolved.context_length(self.arguments)))

    def model_info(self, exchange: Exchange) -> None:
        self._warn_of_old_name(exchange)
        exchange.send_json(info.model_info(self.arguments))

    def server_info(self, exchange: Exchange) -> None:
        self._warn_of_old_name(exchange)
        exchange.send_json(info.server_info(self.arguments, self.launch_command, self.faults))

    def metrics(self, exchange: Exchange) -> None:
        text = info.metrics(self.arguments, self.manager)
        exchange.send(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def chat(self, exchange: Exchange) -> None:
        body = exchange.json()
        asked = replace(chat.request(body, resolved.context_length(self.arguments)), rid=uuid.uuid4().hex)
        model = body.get("model") or self.arguments["served_model_name"]
        with self.manager.submit(asked, exchange.is_gone) as tokens:
            if body.get("stream"):
                with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
                exchange.stream(chat.events(asked, model, tokens, with_usage))
            else:
                exchange.send_json(chat.whole(asked, model, tokens))

    def generate(self, exchange: Exchange) -> None:
        """The engine's own endpoint, which its warm-up asks before anybody else can."""
        body = exchange.json()
        sampling = body.get("sampling_params") or {}
        question = str(body.get("text") or "")
        most = int(sampling.get("max_new_tokens") or 128)
        is_warm_up = self.manager.status == STARTING
        rid, ignore_eos = uuid.uuid4().hex, bool(sampling.get("ignore_eos"))
        asked = Request(rid, question, len(tokens_of(question)) or 1, most, ignore_eos, by_client=not is_warm_up)
        with self.manager.submit(asked, exchange.is_gone) as tokens:
            made = list(tokens)
        finish = {"type": made[-1].finish, "length": len(made)}
        usage = {"prompt_tokens": asked.prompt_tokens, "completion_tokens": len(made)}
        meta = {"id": rid, "finish_reason": finish, **usage}
        exchange.send_json({"text": "".join(token.text for token in made), "meta_info": meta})

    def _warn_of_old_name(self, exchange: Exchange) -> None:
        if exchange.path.startswith("/get_"):
            new = exchange.path.replace("/get_", "/")
            log(
                f"Endpoint '{exchange.path}' is deprecated and will be removed in a future version. "
                f"Please use '{new}' instead."
            )
