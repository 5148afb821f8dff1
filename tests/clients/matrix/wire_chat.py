"""Answers of OpenAI's chat completions API, whole and streamed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from matrix.said import Json
from matrix.script import Reply

_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def completion(name: str, reply: Reply, request: Json) -> Json:
    """The `chat.completion` with an id that holds the name."""
    calls = [
        {
            "id": f"call_{name}_{index}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for index, (tool, arguments) in enumerate(reply.calls)
    ]
    message = {"role": "assistant", "content": reply.text or None, "refusal": None, "annotations": []}
    choice = {
        "index": 0,
        "message": message | ({"tool_calls": calls} if calls else {}),
        "logprobs": None,
        "finish_reason": "tool_calls" if calls else "stop",
    }
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [choice],
        "usage": _USAGE,
    }


def chunks(answer: Json, request: Json) -> Iterator[str]:
    """The same as server-sent events."""
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    [choice] = answer["choices"]
    message = choice["message"]

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
        return f"data: {json.dumps({**head, 'choices': choices})}\n\n"

    yield chunk({"role": "assistant", "content": "" if message["content"] else None})
    for word in re.findall(r"\S+\s*", message["content"] or ""):
        yield chunk({"content": word})
    for index, call in enumerate(message.get("tool_calls") or []):
        arguments = call["function"]["arguments"]
        begun = {"index": index, **call, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        for part in (arguments[:4], arguments[4:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, choice["finish_reason"])
    if (request.get("stream_options") or {}).get("include_usage"):
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': _USAGE})}\n\n"
    yield "data: [DONE]\n\n"
