"""The training side without its servers, and what an agent is to it: for what no request over HTTP can hit for sure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from replaying import BODY
from starlette.types import Message, Receive

from slipstream.proxy.metrics import SharedCounters
from slipstream.settings.sidecar import Settings
from slipstream.sidecar import Sidecar


@asynccontextmanager
async def training_side(store_url: str, explorer_url: str) -> AsyncIterator[Sidecar]:
    """The sidecar without its servers."""
    sections = {"store": {"url": store_url}, "explorer": {"base_url": explorer_url}}
    sidecar = Sidecar(Settings.model_validate(sections), SharedCounters(1))
    await sidecar.start()
    try:
        yield sidecar
    finally:
        await sidecar.stop()


def connected(gone: asyncio.Event | None = None) -> Receive:
    """An agent that sends a chat, and stays until this is set."""
    leaves, messages = gone or asyncio.Event(), [json.dumps(BODY).encode()]

    async def receive() -> Message:
        if messages:
            return {"type": "http.request", "body": messages.pop()}
        await leaves.wait()
        return {"type": "http.disconnect"}

    return receive


async def unheard(message: Message) -> None:
    """What an agent is sent."""
