"""Marks at a running sidecar: what its store has of the tasks afterwards."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from loops import Loop, RunLoop
from serving import until

import slipstream_client as slipstream

Ask = Callable[..., str]
Stored = Callable[[Loop, str], Any]


@pytest.fixture
async def loop(run_loop: RunLoop) -> AsyncIterator[Loop]:
    async with run_loop(selection={"explicit_mark": {}}) as loop:
        slipstream.configure(loop.url)
        yield loop


async def test_the_openai_sdk_carries_a_mark(loop: Loop, ask: Ask, stored: Stored) -> None:
    def agent() -> str:
        with slipstream.mark("high-quality", "grün", task_id="order-17", session_id="customer-7", reference="42"):
            return ask()

    msg_id = await asyncio.to_thread(agent)

    task = await stored(loop, "order-17")
    assert task["calls"][0]["msg_id"] == msg_id
    assert task["session_id"] == "customer-7"
    assert task["labels"] == ["grün", "high-quality"]
    assert task["metadata"] == {"reference": "42"}
    assert slipstream.outbox_counts().sent == 0  # nothing is posted that went with the call


async def test_any_openai_client_carries_a_mark_through_our_http_client(loop: Loop, ask: Ask, stored: Stored) -> None:
    import openai

    def agent() -> None:
        client = openai.OpenAI(base_url=f"{loop.url}/v1", api_key="k", http_client=slipstream.http_client())
        with client, slipstream.mark("sync", task_id="order-17"):
            ask(client.with_options(timeout=30))

    await asyncio.to_thread(agent)
    http_client = slipstream.async_http_client()
    async with openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="k", http_client=http_client) as client:
        with slipstream.mark("async", task_id="order-18"):
            await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": "hello"}])
    assert (await stored(loop, "order-17"))["labels"] == ["sync"]
    assert (await stored(loop, "order-18"))["labels"] == ["async"]


async def test_a_streamed_answer_belongs_to_the_mark(loop: Loop, stored: Stored) -> None:
    def agent() -> str:
        with slipstream.mark("streamed", task_id="order-17"):
            client = slipstream.openai()
            stream = client.chat.completions.create(
                model="prod", messages=[{"role": "user", "content": "one two"}], stream=True
            )
        with client:
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert "one" in await asyncio.to_thread(agent)
    assert (await stored(loop, "order-17"))["labels"] == ["streamed"]


@pytest.mark.slow
async def test_an_async_agent_with_tasks_of_its_own_carries_its_marks(loop: Loop, stored: Stored) -> None:
    async with slipstream.async_openai() as client:

        async def call(content: str) -> None:
            await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": content}])

        async def agent(number: int) -> None:
            async with slipstream.mark(f"label-{number}", task_id=f"order-{number}", number=number):
                await asyncio.gather(call("a"), call("b"))

        await asyncio.gather(*(agent(number) for number in range(10)))

    for number in range(10):
        task = await stored(loop, f"order-{number}")
        await until(lambda n=number: _calls(loop, f"order-{n}", 2))
        assert (task["labels"], task["metadata"]) == ([f"label-{number}"], {"number": number})


async def _calls(loop: Loop, task_id: str, count: int) -> bool:
    task = await loop.task(task_id)
    return task is not None and len(task["calls"]) == count


async def test_plain_httpx_carries_a_mark(loop: Loop, stored: Stored) -> None:
    body = {"model": "prod", "messages": [{"role": "user", "content": "hello"}]}
    async with slipstream.async_http_client(base_url=loop.url) as client:
        with slipstream.mark("plain", task_id="order-17"):
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200

    def agent() -> None:
        with slipstream.http_client() as client, slipstream.mark("plain", task_id="order-18"):
            client.post(f"{loop.url}/v1/chat/completions", json=body).raise_for_status()

    await asyncio.to_thread(agent)
    assert (await stored(loop, "order-17"))["labels"] == ["plain"]
    assert (await stored(loop, "order-18"))["labels"] == ["plain"]


@pytest.mark.slow
async def test_marks_decorate_plain_and_async_functions(loop: Loop, ask: Ask, stored: Stored) -> None:
    @slipstream.mark("plain", task_id="order-17")
    def agent(content: str) -> str:
        """What it does."""
        return ask(content=content)

    @slipstream.mark("async", task_id="order-18")
    async def async_agent(content: str) -> str:
        return await asyncio.to_thread(ask, content=content)

    assert (agent.__name__, agent.__doc__) == ("agent", "What it does.")
    assert asyncio.iscoroutinefunction(async_agent)
    await asyncio.to_thread(agent, "hello")
    await async_agent("hello")
    assert (await stored(loop, "order-17"))["labels"] == ["plain"]
    assert (await stored(loop, "order-18"))["labels"] == ["async"]


async def test_marks_inside_each_other_add_up(loop: Loop, ask: Ask, stored: Stored) -> None:
    def agent() -> None:
        with slipstream.mark("outer", "both", task_id="order-17", reference="1", kept=True):
            with slipstream.mark("both", "inner", reference="2"):
                ask()
            assert slipstream.current().labels == ("outer", "both")
        assert slipstream.current().labels == ()

    await asyncio.to_thread(agent)
    task = await stored(loop, "order-17")
    assert task["labels"] == ["both", "inner", "outer"]
    assert task["metadata"] == {"reference": "2", "kept": True}
    assert slipstream.outbox_counts().waiting + slipstream.outbox_counts().sent == 0


async def test_an_agent_that_only_has_a_base_url_is_marked_at_the_end(loop: Loop, stored: Stored) -> None:
    with slipstream.mark("posted", task_id="order-17", reference="42"):
        await loop.chat(headers={"x-slipstream-task-id": "order-17"})

    assert await asyncio.to_thread(slipstream.flush)
    task = await until(lambda: _marked(loop, "order-17"))
    assert (task["labels"], task["metadata"]) == (["posted"], {"reference": "42"})
    assert (await until(lambda: _selected(loop, "order-17")))["reason"] == "explicit_mark"


async def _marked(loop: Loop, task_id: str) -> dict[str, Any] | None:
    task = await loop.task(task_id)
    return task if task is not None and task["labels"] else None


async def _selected(loop: Loop, task_id: str) -> dict[str, Any] | None:
    task = await loop.task(task_id)
    return task if task is not None and task["selected"] else None


@pytest.mark.slow
async def test_a_mark_without_a_call_is_posted_once_for_its_own_task(loop: Loop, ask: Ask, stored: Stored) -> None:
    def agent() -> None:
        with slipstream.mark("outer", task_id="order-17"), slipstream.mark("inner", task_id="order-18"):
            ask()
        with slipstream.mark("nothing known"):
            pass
        assert slipstream.flush()

    await asyncio.to_thread(agent)
    assert (await stored(loop, "order-18"))["labels"] == ["inner", "outer"]
    assert slipstream.outbox_counts().sent == 1  # that of order-17, whose calls all went to order-18
    await loop.chat(headers={"x-slipstream-task-id": "order-17"})
    assert (await stored(loop, "order-17"))["labels"] == ["outer"]


@pytest.mark.slow
async def test_metadata_of_any_length_arrives(loop: Loop, ask: Ask) -> None:
    reference = "日本語 🙂 " * 20_000

    def agent() -> str:
        with slipstream.mark("long", reference=reference) as context:
            ask(content="a")
            ask(content="b")
        assert slipstream.flush()
        return str(context.task_id)

    task_id = await asyncio.to_thread(agent)
    await until(lambda: _calls(loop, task_id, 2))
    task = await loop.task(task_id)
    assert task is not None
    assert (task["labels"], task["metadata"]) == (["long"], {"reference": reference})
    assert slipstream.outbox_counts().sent == 1


async def test_half_a_character_does_not_break_the_agent(loop: Loop, ask: Ask, stored: Stored) -> None:
    def agent() -> None:
        with slipstream.mark(task_id="order-17", question="half \ud83d pair"):
            ask()

    await asyncio.to_thread(agent)
    assert (await stored(loop, "order-17"))["metadata"] == {"question": "half ? pair"}


async def test_an_answer_is_marked_afterwards(loop: Loop, ask: Ask) -> None:
    answer = await loop.chat(headers={"x-slipstream-task-id": "order-17"})
    await loop.chat(headers={"x-slipstream-task-id": "order-18"})

    slipstream.mark_answer("liked", msg_id=answer["id"], reference="42")
    slipstream.mark_answer("seen", task_id="order-18")

    assert await asyncio.to_thread(slipstream.flush)
    task = await until(lambda: _marked(loop, "order-17"))
    assert (task["labels"], task["metadata"]) == (["liked"], {"reference": "42"})
    assert (await until(lambda: _marked(loop, "order-18")))["labels"] == ["seen"]


def test_jobs_that_plan_their_next_inside_a_mark_hold_no_more_with_each() -> None:
    blocks: list[weakref.ref[Any]] = []

    def job() -> contextvars.Context:
        with slipstream.mark("tick") as context:
            blocks.append(weakref.ref(context.block))
            return contextvars.copy_context()  # as a timer, or an asyncio task, that runs the next one

    planned = contextvars.copy_context()
    for _ in range(10):
        planned = planned.run(job)
    gc.collect()
    assert sum(block() is not None for block in blocks) <= 2


def test_a_replay_ends_where_it_would_make_calls_that_must_not_train() -> None:
    with slipstream.replay("order-17", 0), pytest.raises(RuntimeError, match="never: a replay"), slipstream.never():
        pytest.fail("the block must not run")


async def test_calls_in_a_never_block_are_not_stored(loop: Loop, ask: Ask, stored: Stored) -> None:
    def agent() -> None:
        with slipstream.mark(task_id="order-17"), slipstream.never():
            ask()
        with slipstream.mark(task_id="order-18"):
            ask()

    await asyncio.to_thread(agent)
    await stored(loop, "order-18")
    assert await loop.task("order-17") is None


@pytest.mark.slow
async def test_one_mark_object_serves_many_agents_at_a_time(loop: Loop, ask: Ask, stored: Stored) -> None:
    shared = slipstream.mark("shared")

    async def agent(number: int) -> None:
        with slipstream.mark(task_id=f"order-{number}"), shared:
            await asyncio.to_thread(ask)
        assert slipstream.current().labels == ()

    await asyncio.gather(*(agent(number) for number in range(5)))
    for number in range(5):
        assert (await stored(loop, f"order-{number}"))["labels"] == ["shared"]


async def test_a_generator_that_ends_elsewhere_does_not_fail() -> None:
    """Frameworks run the two halves of a dependency with `yield` in two threads."""

    def dependency() -> Iterator[None]:
        with slipstream.mark("request", task_id="order-17"):
            yield

    generator = dependency()
    await asyncio.to_thread(next, generator)
    assert await asyncio.to_thread(lambda: list(generator)) == []


@pytest.mark.parametrize("decorated", ["generator", "async generator"])
def test_a_generator_function_is_refused(decorated: str) -> None:
    def plain() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match="is a generator: use `with mark"):
        slipstream.mark("a")(plain if decorated == "generator" else asynchronous)


@pytest.mark.parametrize(
    ("labels", "fields", "error", "message"),
    [
        (("a,b",), {}, ValueError, "labels: a label has no commas"),
        (("a" * 65,), {}, ValueError, "labels: expected 1 to 64 characters, found 65"),
        (("",), {}, ValueError, "labels: expected 1 to 64 characters"),
        ((" a",), {}, ValueError, "labels: expected printable text without spaces around it"),
        (("a\nb",), {}, ValueError, "labels: expected printable text"),
        ((["a"],), {}, TypeError, "labels: expected text"),
        (tuple(map(str, range(101))), {}, ValueError, "labels: expected at most 100, found 101"),
        ((), {"task_id": "a" * 65}, ValueError, "task_id: expected 1 to 64 characters"),
        ((), {"task_id": 17}, TypeError, "task_id: expected text, found 17"),
        ((), {"session_id": "\ud83d"}, ValueError, "session_id: expected printable text"),
        ((), {"reference": object()}, TypeError, "metadata.reference: expected what JSON can hold"),
        ((), {"reference": float("nan")}, ValueError, "metadata.reference: expected finite numbers"),
    ],
)
def test_what_cannot_be_a_mark_is_refused_by_name(labels: Any, fields: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        slipstream.mark(*labels, **fields)


def test_an_answer_needs_one_name() -> None:
    for names in ({}, {"msg_id": "a", "task_id": "b"}):
        with pytest.raises(ValueError, match=r"^msg_id, task_id: give exactly one of them"):
            slipstream.mark_answer("a", **names)


async def test_other_gateways_take_the_longest_headers(loop: Loop, ask: Ask, stored: Stored) -> None:
    """As many labels and as much metadata as go with a call, together."""
    labels = [f"{number:064}" for number in range(60)]

    def agent() -> None:
        with slipstream.mark(*labels, task_id="order-17", reference="é" * 600):
            ask()

    await asyncio.to_thread(agent)
    task = await stored(loop, "order-17")
    assert task["labels"] == labels
    assert task["metadata"] == {"reference": "é" * 600}
    assert slipstream.outbox_counts().sent == 0


async def test_the_sdks_own_error_comes_where_the_sidecar_is_gone(ask: Ask) -> None:
    import openai

    slipstream.configure("http://127.0.0.1:9")
    with slipstream.openai(max_retries=0) as client, slipstream.mark("a"), pytest.raises(openai.APIConnectionError):
        await asyncio.to_thread(ask, client)
    with pytest.raises(httpx.ConnectError), slipstream.http_client() as client:
        client.get("http://127.0.0.1:9/v1/models")
