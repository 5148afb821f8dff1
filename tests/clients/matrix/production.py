"""A production model for agents of any framework, in three dialects: `script.py` says what it answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from matrix import said, wire_chat, wire_messages, wire_responses
from matrix.said import Json, Said
from matrix.script import GREETING, Reply, reply, tool_of


class Production:
    """The production model.

    A stream of a greeting ends as long after its last event as the question says.

    Attributes:
        asked: the request of each answer, by the answer's id, which holds `weather-NUMBER`, `late-MILLISECONDS-NUMBER`,
            or `aside-NUMBER` for what an agent asks beside its work.
        conversations: what was said up to each answer, by the answer's id.
    """

    def __init__(self) -> None:
        self.asked: dict[str, Json] = {}
        self.conversations: dict[str, list[Said]] = {}
        self._numbers = itertools.count()
        self._items: dict[str, Json] = {}
        self._answered: dict[str, list[Json]] = {}
        self._threads: dict[str, Json] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/responses", self._responses, methods=["POST"]),
                Route("/v1/messages", self._messages, methods=["POST"]),
            ]
        )

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        tools = [tool["function"]["name"] for tool in body.get("tools") or []]
        conversation = said.in_chat(body)
        name, late = self._name(conversation, tools)
        answer = wire_chat.completion(name, _reply(conversation, tools, body.get("parallel_tool_calls")), body)
        return self._answer(body, conversation, answer, wire_chat.chunks(answer, body), late)

    async def _responses(self, request: Request) -> Response:
        body = await request.json()
        tools = [tool["name"] for tool in body.get("tools") or [] if "name" in tool]
        conversation = said.in_responses(body, self._items, self._answered)
        name, late = self._name(conversation, tools)
        answer = wire_responses.response(name, _reply(conversation, tools, body.get("parallel_tool_calls")), body)
        if body.get("store") is not False:
            self._items |= {item["id"]: item for item in answer["output"]}
            before = said.items_of(body, self._items, self._answered)
            self._answered[answer["id"]] = [*before, *answer["output"]]
        return self._answer(body, conversation, answer, wire_responses.events(answer), late)

    async def _messages(self, request: Request) -> Response:
        body = await request.json()
        thread = body.get("thread") or {}
        if thread.get("type") == "continue":
            held = self._threads[thread["previous_message_id"]]
            body = {**held, **body, "messages": held["messages"] + body["messages"]}
        tools = [tool["name"] for tool in body.get("tools") or []]
        conversation = said.in_messages(body)
        name, late = self._name(conversation, tools)
        one_by_one = (body.get("tool_choice") or {}).get("disable_parallel_tool_use")
        answer = wire_messages.message(name, _reply(conversation, tools, not one_by_one), body)
        if thread:
            answered = {"role": "assistant", "content": answer["content"]}
            self._threads[answer["id"]] = {**body, "messages": [*body["messages"], answered]}
        return self._answer(body, conversation, answer, wire_messages.events(answer), late)

    def _name(self, conversation: list[Said], tools: list[str]) -> tuple[str, int]:
        """A name for the answer, and how many milliseconds late its stream is to end."""
        number, spoken = next(self._numbers), "\n".join(one.text for one in conversation)
        if greeted := GREETING.search(spoken):
            return f"late-{greeted[2]}-{number}", int(greeted[2])
        at_work = "[[ ## " in spoken or tool_of(tools) is not None
        return f"{'weather' if at_work else 'aside'}-{number}", 0

    def _answer(self, body: Json, conversation: list[Said], answer: Json, events: Iterable[str], late: int) -> Response:
        self.asked[answer["id"]] = body
        self.conversations[answer["id"]] = conversation
        if body.get("stream"):
            return StreamingResponse(_ending_late(events, late), media_type="text/event-stream")
        return JSONResponse(answer)


def _reply(conversation: list[Said], tools: list[str], parallel: Any) -> Reply:
    return reply(conversation, tools, parallel=parallel is not False)


async def _ending_late(events: Iterable[str], late: int) -> AsyncIterator[str]:
    for event in events:
        yield event
    if late:
        await asyncio.sleep(late / 1000)
