"""Shapes of the OpenAI endpoint, whole and streamed, as the real engine gives them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sandbox.simulated.engine.model import Request, tokens_of
from sandbox.simulated.engine.scheduler import Token
from sandbox.simulated.engine.server import Reply

END_OF_SEQUENCE = 1
# A chat template adds some to each message.
TEMPLATE_TOKENS = 4


def request(body: Mapping[str, Any], context: int) -> Request:
    """What a chat completion's body asks for. Raises Reply for one that does not fit into the context."""
    messages = body.get("messages") or []
    if not messages:
        raise Reply(400, error("messages must not be empty"))
    question = str(messages[-1].get("content") or "")
    prompt = sum(len(tokens_of(str(one.get("content") or ""))) + TEMPLATE_TOKENS for one in messages)
    room = context - prompt - 1
    wanted = body.get("max_completion_tokens") or body.get("max_tokens") or max(room, 1)
    if wanted > room:
        raise Reply(400, error(too_long(context, prompt, wanted)))
    return Request("", question, prompt, wanted, bool(body.get("ignore_eos")))


def too_long(context: int, prompt: int, wanted: int) -> str:
    return (
        f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
        f"total of {prompt + wanted} tokens: {prompt} tokens from the input messages and {wanted} tokens for the "
        "completion. Please reduce the number of tokens in the input messages or the completion to fit within the "
        "limit."
    )


def error(message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


def whole(asked: Request, model: str, tokens: Iterable[Token]) -> dict[str, Any]:
    made = list(tokens)
    text = "".join(token.text for token in made)
    return {
        **_head(asked.rid, "chat.completion", model),
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "reasoning_content": None},
                "logprobs": None,
                **_finish(made[-1].finish),
            }
        ],
        "usage": usage(asked.prompt_tokens, len(made)),
        "metadata": {
            "weight_version": "default",
            "weight_versions": [{"version": "default", "start": 0, "end": len(made)}],
        },
    }


def events(asked: Request, model: str, tokens: Iterable[Token], with_usage: bool) -> Iterator[str]:
    """Yield the data of each event: the role with the first token, text, the end, usage, [DONE]."""
    head = _head(asked.rid, "chat.completion.chunk", model)
    made = 0
    for made, token in enumerate(tokens, 1):
        if made == 1:
            yield _chunk(head, {"role": "assistant", "content": ""}, None)
        if token.text:
            yield _chunk(head, {"content": token.text}, None)
        if token.finish:
            yield _chunk(head, {}, token.finish)
    if with_usage:
        yield _json({**head, "choices": [], "usage": usage(asked.prompt_tokens, made)})
    yield "[DONE]"


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def _head(rid: str, kind: str, model: str) -> dict[str, Any]:
    return {"id": rid, "object": kind, "created": int(time.time()), "model": model}


def _chunk(head: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None) -> str:
    choice = {"index": 0, "delta": {"reasoning_content": None, **delta}, "logprobs": None, **_finish(finish)}
    return _json({**head, "choices": [choice]})


def _finish(finish: str | None) -> dict[str, Any]:
    return {"finish_reason": finish, "matched_stop": END_OF_SEQUENCE if finish == "stop" else None}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
