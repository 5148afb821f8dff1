"""Each test of the client begins as a new process would: not configured, and with an empty outbox."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from loops import Loop
from serving import until

import slipstream_client as slipstream
from slipstream_client import config, http, outbox
from slipstream_client.outbox import Outbox


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SLIPSTREAM_URL", "SLIPSTREAM_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(config, "_configured", None)
    monkeypatch.setattr(http, "_warned", False)
    box = Outbox(first_pause=0.01)
    monkeypatch.setattr(outbox, "_outbox", box)
    yield
    box.close(0)
    for thread in threading.enumerate():
        if thread.name == "slipstream-outbox":
            thread.join(10)


Stored = Callable[[Loop, str], Coroutine[Any, Any, dict[str, Any]]]


@pytest.fixture
def stored() -> Stored:
    """What the sidecar has stored of a task, once it has it."""

    async def find(loop: Loop, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await until(lambda: loop.task(task_id))
        return found

    return find


@pytest.fixture
def ask() -> Callable[..., str]:
    """One call of an agent through an openai client; returns the answer's id."""

    def call(client: Any = None, content: str = "hello", **fields: Any) -> str:
        with nullcontext(client) if client else slipstream.openai() as sdk:
            messages = [{"role": "user", "content": content}]
            return str(sdk.chat.completions.create(model="prod", messages=messages, **fields).id)

    return call


@pytest.fixture
def instrumented() -> Iterator[None]:
    """Threads and pools carry the context, as a `TrainingRunner` has them do."""
    slipstream.instrument_threads()
    yield
    slipstream.uninstrument_threads()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that would run again, of runners whose sidecar is away."""
    tasks: list[Any] = []

    class Taking:
        agents_loop = None

        def __init__(self, *args: object) -> None: ...

        def offer(self, task: Any) -> None:
            tasks.append(task)

        def stop(self, timeout: float, within: float | None) -> None: ...

    monkeypatch.setattr("slipstream_client.training.runner.Replays", Taking)
    return tasks


@pytest.fixture
def runner(ran: list[Any]) -> Iterator[slipstream.TrainingRunner]:
    runner = slipstream.TrainingRunner(slipstream.SamplingRate(1))
    with runner:
        yield runner
