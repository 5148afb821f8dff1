"""A production model and an Explorer that answer by script, each a real uvicorn server.

The Explorer keeps Trinity's contract, traps included: the first reward of an answer wins, unknown ids have no effect
and get a 200, the queue is in memory, a commit that fails empties it, counters belong to the process. What it was
told it writes to a journal, one JSON line an event, so that a test can say afterwards what had effect.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def completion(msg_id: str, content: str, tool_calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A `chat.completion` object with one choice."""
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if tool_calls:
        message["tool_calls"] = tool_calls
    return {
        "id": msg_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if tool_calls else "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def tool_call(name: str, arguments: dict[str, Any], call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def production_app(sent: dict[str, bytes] | None = None) -> Starlette:
    """Answers `echo: <last message>`; a user message that asks to `use the tool` gets one tool call first.

    Args:
        sent: takes the bytes of each whole answer, by the last message's content.
    """
    numbers = itertools.count()

    async def chat(request: Request) -> Response:
        body = await request.json()
        last = body["messages"][-1]
        number = next(numbers)
        if last["role"] == "user" and "use the tool" in str(last["content"]):
            answer = completion(f"prod-{number}", "", [tool_call("look_up", {"q": number}, f"call_{number}")])
        else:
            answer = completion(f"prod-{number}", f"echo: {last['content']}")
        if not body.get("stream"):
            response = JSONResponse(answer)
            if sent is not None:
                sent[str(last["content"])] = response.body
            return response
        return StreamingResponse(_chunks(answer), media_type="text/event-stream")

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/v1/models", models)])


async def _chunks(answer: dict[str, Any]) -> Any:
    choice = answer["choices"][0]
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"content": word} for word in (choice["message"]["content"] or "").split(" ")]
    head = {"id": answer["id"], "object": "chat.completion.chunk", "created": answer["created"], "model": "scripted"}
    for delta in deltas:
        yield f"data: {json.dumps({**head, 'choices': [{'index': 0, 'delta': delta, 'finish_reason': None}]})}\n\n"
    last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n"


class ScriptedExplorer:
    """Trinity's HTTP with scripted answers.

    Attributes:
        faults: path -> statuses to answer with, one a request, before the path works again; 200 lets one through.
        version: the model version that /metrics tells.
        model: the model that /v1/models names.
        chats: the requests it was sent.
        hold: while it is not set, chats wait.
        pace: while it is not set, streams wait behind their first event.
        cut_after: streams break off after so many events, and what there is of them is recorded, as in Trinity.
        keep_queue_on_fault: a commit's fault stands before the Explorer (a gateway), which never hears of it.
        commit_route, feedback_route: carry out /commit and /feedback.
    """

    def __init__(self, journal: Path | None = None, answer: str = "policy says {n}") -> None:
        self.journal = journal
        self.answer = answer
        self.faults: dict[str, list[int]] = {}
        self.version = 0
        self.model = "/models/policy"
        self.chats: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.keep_queue_on_fault = False
        self.pace = asyncio.Event()
        self.pace.set()
        self.cut_after: int | None = None
        self.commit_route = self._commit
        self.feedback_route = self._feedback
        self.boot()
        self._ids = itertools.count()

    def boot(self, forget: bool = True) -> None:
        """A new process: the queue and the counters are gone, what is recorded or consumed stays as it was."""
        self.total = self.ready = self.step = 0
        self.queue: list[dict[str, Any]] = []
        if forget:
            self.recorded: set[str] = set()
            self.choices: dict[str, int] = {}
            self.committed: list[list[dict[str, Any]]] = []

    @property
    def trained(self) -> list[dict[str, Any]]:
        """The experiences of all commits, in order."""
        return [experience for commit in self.committed for experience in commit]

    def trained_by_group(self) -> dict[str, list[dict[str, Any]]]:
        """The experiences of all commits, by group. Fails if one had effect twice, or a group is in two commits."""
        names = [experience["msg_id"] for experience in self.trained]
        assert len(set(names)) == len(names), "an answer had effect twice"
        groups: dict[str, list[dict[str, Any]]] = {}
        for commit in self.committed:
            new: dict[str, list[dict[str, Any]]] = {}
            for experience in commit:
                new.setdefault(experience["task_id"], []).append(experience)
            assert not groups.keys() & new.keys(), "a group went out in several commits"
            groups |= new
        return groups

    def app(self) -> Starlette:
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/feedback", self._route_feedback, methods=["POST"]),
            Route("/commit", self._route_commit, methods=["POST"]),
            Route("/metrics", self._metrics),
            Route("/health", self._health),
        ]
        return Starlette(routes=routes)

    def _fault(self, request: Request) -> Response | None:
        waiting = self.faults.get(request.url.path)
        if not waiting:
            return None
        status = waiting.pop(0)
        return None if status == 200 else JSONResponse({"error": {"message": "scripted fault"}}, status)

    async def _chat(self, request: Request) -> Response:
        try:
            body = await request.json()
        except ClientDisconnect:  # a sidecar that was killed
            return Response(status_code=499)
        self.chats.append(body)
        self.headers.append(dict(request.headers))
        await self.hold.wait()
        if (fault := self._fault(request)) is not None:
            return fault
        msg_id = f"policy-{os.getpid()}-{next(self._ids)}"
        answer = self.reply(msg_id, body)
        answer["choices"] *= body.get("n") or 1
        if body.get("stream"):
            return StreamingResponse(self._stream(answer), media_type="text/event-stream")
        self._record(answer)
        return JSONResponse(answer)

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """The policy's answer to a request."""
        return completion(msg_id, self.answer.format(n=len(self.chats)))

    async def _stream(self, answer: dict[str, Any]) -> Any:
        events = 0
        async for chunk in _chunks(answer):
            if events == self.cut_after:
                self._record(answer)
                raise ConnectionError("scripted: the engine is gone")
            yield chunk
            events += 1
            await self.pace.wait()
        self._record(answer)

    def _record(self, answer: dict[str, Any]) -> None:
        self.recorded.add(answer["id"])
        self.choices[answer["id"]] = len(answer["choices"])
        self.total += len(answer["choices"])
        self._write({"event": "recorded", "msg_id": answer["id"]})

    async def _models(self, request: Request) -> Response:
        return self._fault(request) or JSONResponse({"object": "list", "data": [{"id": self.model}]})

    async def _feedback(self, request: Request) -> Response:
        if (fault := self._fault(request)) is not None:
            return fault
        body = await request.json()
        for msg_id in body["msg_ids"]:
            if msg_id in self.recorded:
                self.recorded.remove(msg_id)  # consumed: the first reward wins
                choices = self.choices[msg_id]
                self.queue += [{**body, "msg_id": msg_id}] * choices
                self.ready += choices
        return JSONResponse({"status": "success"})

    async def _route_feedback(self, request: Request) -> Response:
        return await self.feedback_route(request)

    async def _route_commit(self, request: Request) -> Response:
        return await self.commit_route(request)

    async def _commit(self, request: Request) -> Response:
        if self.keep_queue_on_fault and (fault := self._fault(request)) is not None:
            return fault
        taken, self.queue = self.queue, []
        if (fault := self._fault(request)) is not None:
            return fault  # and what was taken is lost, as in Trinity
        self.committed.append(taken)
        self.step += 1
        self._write({"event": "committed", "experiences": taken})
        return JSONResponse({"status": "success"})

    async def _metrics(self, request: Request) -> Response:
        return self._fault(request) or JSONResponse(
            {
                "rollout/model_0/total_request_count": len(self.chats),
                "rollout/model_0/model_version": self.version,
                "rollout/total_experience_count": self.total,
                "rollout/ready_experience_count": self.ready,
                "explore_step_num": self.step,
            }
        )

    async def _health(self, request: Request) -> Response:
        return Response()

    def _write(self, event: dict[str, Any]) -> None:
        if self.journal is not None:
            with self.journal.open("a") as file:
                file.write(json.dumps(event) + "\n")


def main() -> None:
    """Run one of them as a process of its own: `scripted.py production|explorer PORT [JOURNAL]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["production", "explorer"])
    parser.add_argument("port", type=int)
    parser.add_argument("journal", type=Path, nargs="?")
    options = parser.parse_args()
    app = production_app() if options.role == "production" else ScriptedExplorer(options.journal).app()
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error")


if __name__ == "__main__":
    main()
