"""Size of conversations in the store, and CPU to read and store their calls: each part once, or each call whole. Then
the same of agent replays, and the requests of shadow runs.

    python benchmarks/conversations.py [--conversations 100] [--rounds 5]

An agent's conversations of 1, 10 and 40 calls, each call with all that was said before: a system prompt, tools, and in
each turn a tool call and what it found. Texts are of this repository's documentation. Calls are read and stored as the
Recorder does it, 100 in a transaction, those of all conversations in turns. "Whole" stores each request by itself, as
releases before did. Bytes are those in use of a SQLite store, indexes included, less those of an empty one; CPU is the
median of the rounds, which alternate between both.

Replays are of tasks with two runs, whose agents are asked the same and find other things: kB are those of a run. A
shadow run's request is measured by itself, packed, one for each call of the conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from slipstream.capture.completion import CapturedCall, read_call
from slipstream.capture.conversations import Conversations, completes
from slipstream.capture.histories import Histories, Items
from slipstream.capture.prefixes import Prefixes
from slipstream.capture.redacted import RedactedExchange
from slipstream.dialects.elements import split
from slipstream.explorer.client import agent_request, shadow_request
from slipstream.facade.chat import under_name
from slipstream.jsontext import from_json, to_json
from slipstream.runs.replay_conversations import ReplayConversations
from slipstream.store import replay_calls, replays, shadow_requests
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.recording import NewCall, add_calls
from slipstream.store.segments import whole
from slipstream.store.size import size
from slipstream.store.states import RunState

_TURNS = (1, 10, 40)
_BATCH = 100
_RUNS = 2
_DOCS = Path(__file__).parent.parent / "docs"


def _texts() -> Iterator[str]:
    """Pieces of some 1,200 characters, another one each time."""
    documents = "\n".join(path.read_text(encoding="utf-8") for path in sorted(_DOCS.glob("*.md")))
    for number in itertools.count():
        at = number * 1117 % (len(documents) - 1200)
        yield documents[at : at + 1200]


def _tools() -> list[dict[str, Any]]:
    fields = {name: {"type": "string", "description": f"the {name} to look for"} for name in ("query", "place", "day")}
    parameters = {"type": "object", "properties": fields, "required": ["query"], "additionalProperties": False}
    return [
        {"type": "function", "function": {"name": name, "description": f"Use it to {name}.", "parameters": parameters}}
        for name in ("search", "read", "write", "list", "delete", "compare", "translate", "summarize")
    ]


def _prompt(texts: Iterator[str]) -> list[Any]:
    return [{"role": "system", "content": next(texts)}, {"role": "user", "content": next(texts)[:200]}]


def _conversation(texts: Iterator[str], number: int, turns: int, messages: list[Any]) -> list[RedactedExchange]:
    exchanges = []
    for turn in range(turns):
        call_id = f"call_{number:08x}{turn:08x}"
        function = {"name": "search", "arguments": json.dumps({"query": next(texts)[:40]})}
        said = {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}
        choice = {"index": 0, "message": {**said, "refusal": None}, "finish_reason": "tool_calls"}
        request = {"messages": messages, "model": "gpt-4o", "tools": _tools(), "temperature": 0.2}
        answer = {"id": f"chatcmpl-{number:016x}{turn:08x}", "object": "chat.completion", "choices": [choice]}
        exchanges.append(
            RedactedExchange(
                request=json.dumps(request, separators=(",", ":")).encode(), answer=json.dumps(answer).encode(),
                credentials=b"of the agent", identity=None, route=1, retry=0, started_at=time.time(), latency=0.5,
            )
        )  # fmt: skip
        messages = [*messages, said, {"role": "tool", "tool_call_id": call_id, "content": next(texts)}]
    return exchanges


class _Recording:
    """Reads and stores calls as the Recorder does."""

    def __init__(self, database: Database, *, once: bool) -> None:
        self._database = database
        self._once = once
        self._conversations = Conversations(10_000)
        self._prefixes = Prefixes(10_000)
        self._histories = Histories(Items())

    async def record(self, exchanges: list[RedactedExchange]) -> None:
        calls = [self._new(read_call(kept, self._histories)) for kept in exchanges]
        async with self._database.write() as session:
            added = await add_calls(session, calls, time.time())
        self._prefixes.stored(added.segments)

    def _new(self, call: Any) -> NewCall:
        assert isinstance(call, CapturedCall), call
        place = self._conversations.place(call)
        text = call.request_text
        request = self._prefixes.stored_form(text, call.messages) if self._once else whole(text)
        return NewCall(
            session_id=place.session_id, task_id=place.task_id, new_task=place.new_task, request=request,
            answer=pack(call.answer_text), msg_id=call.msg_id, latency=call.latency, started_at=call.started_at,
            completes=completes(call), marked=False, labels=call.mark, metadata=call.metadata,
        )  # fmt: skip


class _Replaying:
    """Stores the calls of agents that are run again as the sidecar does."""

    def __init__(self, database: Database, *, once: bool) -> None:
        self._database = database
        self._once = once
        self._conversations = ReplayConversations(database, 10_000)
        self._runs: dict[int, tuple[str, int]] = {}

    async def open(self, runs: int) -> None:
        for number in range(0, runs, _RUNS):
            task_id = f"task-{number}"
            async with self._database.write() as session:
                await replays.note_task(session, task_id, None, [], {}, time.time())
                group = await replays.open_runs(
                    session, task_id, _RUNS, time.time(), state=RunState.OPEN, by_client=True, due_at=time.time()
                )
                for run_id in group.run_ids:
                    run = await replays.find(session, task_id, run_id)
                    assert run is not None, "it was opened"
                    self._runs[number + run_id] = task_id, run.pk

    async def record(self, exchanges: list[tuple[int, RedactedExchange]]) -> None:
        for number, kept in exchanges:
            task_id, pk = self._runs[number]
            answer, _ = from_json(kept.answer)
            text = under_name(to_json(agent_request(from_json(kept.request)[0])), "policy")
            parts = split(text, "messages") if self._once else None
            call = replay_calls.NewCall(answer["id"], 1, text, parts, pack(answer), kept.latency, 0, kept.started_at)
            async with self._conversations.adding(task_id, pk, call, time.time(), time.time()):
                pass


async def _replays(folder: Path, conversations: list[list[RedactedExchange]], *, once: bool) -> tuple[float, float]:
    """Bytes a run, and seconds of CPU a call."""
    database, empty = await _empty(folder)
    replaying = _Replaying(database, once=once)
    await replaying.open(len(conversations))
    calls = list(itertools.chain.from_iterable(zip(*map(_numbered, itertools.count(), conversations), strict=True)))
    began = time.process_time()
    await replaying.record(calls)
    took = time.process_time() - began
    return await _taken(database, empty) / len(conversations), took / len(calls)


def _numbered(number: int, conversation: list[RedactedExchange]) -> list[tuple[int, RedactedExchange]]:
    return [(number, kept) for kept in conversation]


def _shadow(conversation: list[RedactedExchange]) -> tuple[int, int]:
    """Bytes of the requests of shadow runs, one a call: whole, and as they are stored."""
    whole_size = stored = 0
    for kept in conversation:
        call, _ = from_json(kept.request)
        request = shadow_request(call, "/models/policy")
        whole_size += len(pack(request))
        stored += len(shadow_requests.packed(request, call))
    return whole_size, stored


async def _empty(folder: Path) -> tuple[Database, int]:
    """A new store, and its size."""
    database = Database(f"sqlite+aiosqlite:///{folder / f'{time.time_ns()}.db'}")
    await database.open()
    await database.scrub()
    async with database.read() as session:
        return database, await size(session)


async def _taken(database: Database, empty: int) -> int:
    """Bytes that a store has got since it was empty; it is closed."""
    await database.scrub()
    async with database.read() as session:
        taken = await size(session) - empty
    await database.close()
    return taken


async def _round(folder: Path, conversations: list[list[RedactedExchange]], *, once: bool) -> tuple[float, float]:
    """Bytes a conversation, and seconds of CPU a call."""
    database, empty = await _empty(folder)
    recording = _Recording(database, once=once)
    calls = list(itertools.chain.from_iterable(zip(*conversations, strict=True)))
    began = time.process_time()
    for at in range(0, len(calls), _BATCH):
        await recording.record(calls[at : at + _BATCH])
    took = time.process_time() - began
    return await _taken(database, empty) / len(conversations), took / len(calls)


async def _measure(amount: int, rounds: int) -> None:
    print("Captured calls:\n")
    await _compare(_round, amount, rounds, runs=1)
    print("\nAgent replays:\n")
    await _compare(_replays, amount, rounds, runs=_RUNS)
    print("\nRequests of shadow runs:\n\n| calls | whole: kB | stored: kB |\n|---|---|---|")
    for turns in _TURNS:
        texts = _texts()
        whole_size, stored = _shadow(_conversation(texts, 0, turns, _prompt(texts)))
        print(f"| {turns} | {whole_size / 1e3:.1f} | {stored / 1e3:.1f} |")


async def _compare(measure: Any, amount: int, rounds: int, runs: int) -> None:
    """Print a table of conversations, whole and once.

    Args:
        measure: of a folder and the conversations: bytes of one, and seconds of CPU a call.
        runs: conversations that begin with the same prompt.
    """
    print("| calls | last request, kB | whole: kB | once: kB | whole: CPU µs a call | once |")
    print("|---|---|---|---|---|---|")
    for turns in _TURNS:
        texts = _texts()
        many = max(amount, 4000 // turns // 10)
        prompts = [_prompt(texts) for _ in range(0, many, runs)]
        conversations = [_conversation(texts, number, turns, prompts[number // runs]) for number in range(many)]
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(rounds):
                for once in (False, True):
                    found[once].append(await measure(Path(folder), conversations, once=once))
        (whole_bytes, whole_cpu), (once_bytes, once_cpu) = (
            (statistics.median(part) for part in zip(*found[once], strict=True)) for once in (False, True)
        )
        longest = len(conversations[0][-1].request) / 1e3
        print(
            f"| {turns} | {longest:.1f} | {whole_bytes / 1e3:.1f} | {once_bytes / 1e3:.1f} "
            f"| {whole_cpu * 1e6:.0f} | {once_cpu * 1e6:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    asyncio.run(_measure(given.conversations, given.rounds))


if __name__ == "__main__":
    main()
