"""A scripted production model that speaks OpenAI's Responses API and Anthropic's Messages API."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]


class DialectsProduction:
    """Answers `echo: <last text>`; a text that asks to `use the tool` gets a call of `look_up` first, and a request for
    JSON of a schema gets `{"said": <last text>}`.

    Attributes:
        asked: the body of each request, in order.
    """

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self._threads: dict[str, Json] = {}
        self._numbers = itertools.count()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/responses", self._response, methods=["POST"]),
                Route("/v1/messages", self._message, methods=["POST"]),
            ]
        )

    async def _response(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        number = next(self._numbers)
        given = body["input"]
        last = given if isinstance(given, str) else given[-1]
        text = last if isinstance(last, str) else _text(last.get("content", last.get("output")))
        if "use the tool" in text and (isinstance(last, str) or last.get("role") == "user"):
            call = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}", "name": "look_up"}
            output = [{**call, "arguments": json.dumps({"q": number}), "status": "completed"}]
        else:
            echo = _echo(text, (body.get("text") or {}).get("format"))
            part = {"type": "output_text", "text": echo, "annotations": [], "logprobs": []}
            said = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
            output = [{**said, "content": [part]}]
        answer = {
            "id": f"resp_{number}", "object": "response", "created_at": time.time(), "status": "completed",
            "error": None, "incomplete_details": None, "instructions": body.get("instructions"), "metadata": {},
            "model": "prod", "output": output, "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto",
            "tools": body.get("tools", []), "top_p": 1.0, "previous_response_id": body.get("previous_response_id"),
            "usage": {"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2,
                      "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 5},
        }  # fmt: skip
        if not body.get("stream"):
            return JSONResponse(answer)
        return StreamingResponse(_named(_response_events(answer)), media_type="text/event-stream")

    async def _message(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        number = next(self._numbers)
        thread = body.get("thread") or {}
        if thread.get("type") == "continue":
            assert not {"system", "tools"} & body.keys(), "Anthropic's API refuses these"
            held = self._threads[thread["previous_message_id"]]
            body = {**held, **body, "messages": held["messages"] + body["messages"]}
        last = body["messages"][-1]
        text = _text(last["content"])
        if last["role"] == "user" and "use the tool" in text and body.get("tools"):
            content = [{"type": "tool_use", "id": f"toolu_{number}", "name": "look_up", "input": {"q": number}}]
        else:
            content = [{"type": "text", "text": _echo(text, (body.get("output_config") or {}).get("format"))}]
        answer = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "prod", "content": content,
            "stop_reason": "tool_use" if content[0]["type"] == "tool_use" else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 2},
        }  # fmt: skip
        if thread:
            said = {"role": "assistant", "content": content}
            self._threads[answer["id"]] = {**body, "messages": [*body["messages"], said]}
        if not body.get("stream"):
            return JSONResponse(answer)
        return StreamingResponse(_named(_message_events(answer)), media_type="text/event-stream")


def _text(content: Any) -> str:
    """All texts in a message's content, or in a tool's output."""
    if isinstance(content, str):
        return content
    return " ".join(_text(part.get("text", part.get("content", ""))) for part in content or ())


def _echo(text: str, form: Json | None) -> str:
    return json.dumps({"said": text}) if form and form["type"] == "json_schema" else f"echo: {text}"


def _named(events: Iterator[Json]) -> Iterator[bytes]:
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _response_events(answer: Json) -> Iterator[Json]:
    numbers = itertools.count()
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "sequence_number": next(numbers), "response": begun}
    for index, item in enumerate(answer["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        empty = {
            **item,
            "status": "in_progress",
            **({"content": []} if item["type"] == "message" else {"arguments": ""}),
        }
        yield {"type": "response.output_item.added", "sequence_number": next(numbers), "output_index": index,
               "item": empty}  # fmt: skip
        if item["type"] == "message":
            part = item["content"][0]
            at["content_index"] = 0
            yield {"type": "response.content_part.added", "sequence_number": next(numbers), **at,
                   "part": {**part, "text": ""}}  # fmt: skip
            for word in part["text"].split(" "):
                yield {"type": "response.output_text.delta", "sequence_number": next(numbers), **at, "delta": word,
                       "logprobs": []}  # fmt: skip
        else:
            yield {"type": "response.function_call_arguments.delta", "sequence_number": next(numbers), **at,
                   "delta": item["arguments"]}  # fmt: skip
        yield {"type": "response.output_item.done", "sequence_number": next(numbers), "output_index": index,
               "item": item}  # fmt: skip
    yield {"type": "response.completed", "sequence_number": next(numbers), "response": answer}


def _message_events(answer: Json) -> Iterator[Json]:
    begun = {**answer, "content": [], "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 0}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(answer["content"]):
        if block["type"] == "text":
            yield {"type": "content_block_start", "index": index, "content_block": {**block, "text": ""}}
            deltas = [{"type": "text_delta", "text": word} for word in block["text"].split(" ")]
            deltas[1:] = [{**delta, "text": f" {delta['text']}"} for delta in deltas[1:]]
        else:
            yield {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 2}}
    yield {"type": "message_stop"}
