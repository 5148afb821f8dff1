"""`capture.rate` takes conversations whole or not at all, over several workers, whatever SDK the agent uses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from dialects_production import DialectsProduction
from processes import running
from prometheus_client.parser import text_string_to_metric_families
from scripted import production_app
from serving import serving, until
from sidecar_process import SidecarProcess
from sqlalchemy import select
from starlette.applications import Starlette

from slipstream.store import read_models
from slipstream.store.database import Database
from slipstream.store.tables.capture import TaskRow

CALLS, LEFT_OUT = "slipstream_calls_captured_total", "slipstream_calls_not_captured_total"

Clients = Sequence[Any]
"""Of one SDK, with connections of their own: the kernel gives them to different workers."""

Talk = Callable[[Clients, int, int], Awaitable[None]]
"""Has one conversation, by its number, of so many turns."""


@asynccontextmanager
async def sampling(folder: Path, **sections: Any) -> AsyncIterator[SidecarProcess]:
    """A sidecar of three workers that captures half of the conversations."""
    production = Starlette(routes=[*production_app().routes, *DialectsProduction().app().routes])
    settings = {"capture": {"rate": 0.5}, "proxy": {"workers": 3}, "selection": {"sampling": {"rate": 0.0}}}
    async with serving(production) as url, running(folder, url, None, **settings | sections) as sidecar:
        yield sidecar


async def chats(clients: Clients, number: int, turns: int) -> None:
    """An agent that writes the time into its instructions, and whose turns go through different workers."""
    said: list[Any] = []
    for turn in range(turns):
        told = {"role": "system", "content": f"It is {turn} o'clock."}
        said.append({"role": "user", "content": f"conversation {number}" if not turn else f"turn {turn}"})
        client = clients[(number + turn) % len(clients)]
        answer = await client.chat.completions.create(model="prod", messages=[told, *said], temperature=turn / 10)
        said.append(answer.choices[0].message.model_dump(exclude_none=True))


async def plain(clients: Clients, number: int, turns: int) -> None:
    """An agent that changes nothing of what it has said."""
    said: list[Any] = [{"role": "system", "content": "Be short."}]
    for turn in range(turns):
        said.append({"role": "user", "content": f"conversation {number}" if not turn else f"turn {turn}"})
        client = clients[number % len(clients)]
        answer = await client.chat.completions.create(model="prod", messages=said)
        said.append(answer.choices[0].message.model_dump(exclude_none=True))


async def cached(clients: Clients, number: int, turns: int) -> None:
    """An agent that marks the newest message for the provider's cache, and so writes earlier ones in another way."""
    said: list[Any] = []
    for turn in range(turns):
        text = {"type": "text", "text": f'conversation "{number}"' if not turn else f"turn {turn}"}
        newest = {"role": "user", "content": [{**text, "cache_control": {"type": "ephemeral"}}]}
        client = clients[(number + turn) % len(clients)]
        answer = await client.messages.create(model="prod", max_tokens=9, system=str(turn), messages=[*said, newest])
        said += [{"role": "user", "content": [text]}, {"role": "assistant", "content": answer.content[0].text}]


async def whole(clients: Clients, number: int, turns: int) -> None:
    """An agent that sends the whole conversation to `/v1/responses`."""
    said: list[Any] = []
    for turn in range(turns):
        said.append({"role": "user", "content": f"conversation {number}" if not turn else f"turn {turn}"})
        answer = await clients[(number + turn) % len(clients)].responses.create(model="prod", input=said)
        said += [item.model_dump(exclude_none=True) for item in answer.output]


async def held(clients: Clients, number: int, turns: int) -> None:
    """An agent that leaves the conversation to the provider, and names the answer before."""
    before: Any = openai.omit
    for turn in range(turns):
        said = f"conversation {number}" if not turn else f"turn {turn}"
        client = clients[number % len(clients)]
        answer = await client.responses.create(model="prod", input=said, previous_response_id=before)
        before = answer.id


async def converse(sidecar: SidecarProcess, sdk: Any, base_url: str, talk: Talk, numbers: range, turns: int) -> None:
    async with AsyncExitStack() as stack:
        new = [sdk(base_url=base_url, api_key="k", max_retries=0) for _ in range(12)]
        clients = [await stack.enter_async_context(client) for client in new]
        at_once = asyncio.Semaphore(12)

        async def one(number: int) -> None:
            async with at_once:
                await talk(clients, number, turns)

        await asyncio.gather(*map(one, numbers))


async def counted(sidecar: SidecarProcess) -> tuple[int, int, int]:
    """Calls that are captured, left out, and waiting."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{sidecar.url}/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(name: str, **labels: str) -> int:
        return int(sum(each.value for each in samples if each.name == name and each.labels == labels))

    return value(CALLS), value(LEFT_OUT, reason="rate"), value("slipstream_capture_queue")


async def all_told(sidecar: SidecarProcess, calls: int) -> tuple[int, int]:
    """Calls that were captured and left out, once that is known of so many."""

    async def known() -> bool:
        captured, left_out, waiting = await counted(sidecar)
        return captured + left_out == calls and not waiting

    await until(known)
    return (await counted(sidecar))[:2]


async def stored(sidecar: SidecarProcess) -> tuple[Counter[str], Counter[str]]:
    """Stored calls by the first words of their conversation, and by session; once the sidecar has ended."""
    await until(sidecar.unlocked)
    database = Database(f"sqlite+aiosqlite:///{sidecar.store}")
    await database.open()
    async with database.read() as session:
        tasks = (await read_models.tasks(session, (await session.scalars(select(TaskRow.id))).all())).values()
    await database.close()
    texts: Counter[str] = Counter()
    for call in (call for task in tasks for call in task.calls):
        first = next(message for message in call.request["messages"] if message["role"] == "user")["content"]
        texts[first if isinstance(first, str) else first[0]["text"]] += 1
    return texts, Counter(task.session_id for task in tasks for _ in task.calls)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conversations", "turns"), [(40, 3), pytest.param(200, 5, marks=pytest.mark.slow)], ids=["some", "many"]
)
async def test_conversations_of_the_openai_sdk_are_taken_whole_or_not_at_all(
    tmp_path: Path, conversations: int, turns: int
) -> None:
    async with sampling(tmp_path) as sidecar:
        await converse(sidecar, openai.AsyncOpenAI, f"{sidecar.url}/v1", chats, range(conversations), turns)
        captured, left_out = await all_told(sidecar, conversations * turns)
    texts, _ = await stored(sidecar)
    assert set(texts.values()) == {turns}
    assert (captured, left_out) == (len(texts) * turns, (conversations - len(texts)) * turns)
    assert abs(len(texts) - conversations / 2) < 4 * (conversations / 4) ** 0.5


@pytest.mark.parametrize(
    ("sdk", "base", "talk"),
    [
        (openai.AsyncOpenAI, "/v1", plain),
        (anthropic.AsyncAnthropic, "", cached),
        (openai.AsyncOpenAI, "/v1", whole),
        (openai.AsyncOpenAI, "/v1", held),
    ],
    ids=["chat", "messages", "responses", "held"],
)
@pytest.mark.slow
async def test_so_are_those_of_each_dialect_and_no_link_of_them_is_missing(
    tmp_path: Path, sdk: Any, base: str, talk: Talk
) -> None:
    async with sampling(tmp_path) as sidecar:
        await converse(sidecar, sdk, f"{sidecar.url}{base}", talk, range(24), 3)
        await all_told(sidecar, 24 * 3)
    texts, sessions = await stored(sidecar)
    assert set(texts.values()) == {3}
    assert 3 < len(texts) < 21
    if talk in (plain, held):  # each on one connection, so that its calls are read in their order
        assert set(sessions.values()) == {3}
        assert len(sessions) == len(texts)
