"""Handing rewards over: to one process of the Explorer, over whatever connection it is reached."""

from __future__ import annotations

import pytest
from contexts import parse_memory
from ports import free_port
from scripted import ScriptedExplorer
from serving import serving
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.errors import ExplorerRestarted
from slipstream.explorer.handover import Handover
from slipstream.http import pool


class OneRequestEach:
    """Has the server close each connection behind its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, closing)


def _explorer() -> ScriptedExplorer:
    explorer = ScriptedExplorer()
    for msg_id in ("a", "b"):
        explorer.recorded.add(msg_id)
        explorer.choices[msg_id] = 1
    explorer.total = 2
    return explorer


def _allowed() -> None: ...


async def _tell(handover: Handover, msg_id: str) -> None:
    await handover.feedback(msg_id=msg_id, reward=0.5, task_id="t", run_id=0, allowed=_allowed)


async def _all_of_it(explorer: ScriptedExplorer, url: str) -> None:
    handover = Handover(url, parse_memory(), connect_timeout=5, commit_timeout=5)
    await handover.counters()
    await _tell(handover, "a")
    await _tell(handover, "b")
    await handover.commit(allowed=_allowed)
    handover.close()
    assert [one["msg_id"] for one in explorer.trained] == ["a", "b"]


async def test_an_explorer_that_closes_each_connection_is_told_all_of_it() -> None:
    explorer = _explorer()
    app = explorer.app()
    app.user_middleware.append(Middleware(OneRequestEach))
    async with serving(app) as url:
        await _all_of_it(explorer, url)


async def test_so_is_one_whose_connection_was_idle_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_LIFE", 0.0)
    explorer = _explorer()
    async with serving(explorer.app()) as url:
        await _all_of_it(explorer, url)


@pytest.mark.parametrize("chats", [0, 5], ids=["as it starts", "when it has answered more chats than the last one"])
async def test_a_new_process_is_told_nothing(chats: int) -> None:
    explorer = _explorer()
    port = free_port()
    async with serving(explorer.app(), port) as url:
        handover = Handover(url, parse_memory(), connect_timeout=5, commit_timeout=5)
        await handover.counters()
        await _tell(handover, "a")
        assert (await handover.counters()).ready == 1
    explorer.boot(forget=False)
    explorer.total = chats
    async with serving(explorer.app(), port):
        with pytest.raises(ExplorerRestarted):
            await _tell(handover, "b")
        await handover.counters()
        handover.close()
        assert explorer.queue == []
