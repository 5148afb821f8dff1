"""The pulse of a process with an event loop."""

from __future__ import annotations

import asyncio

from slipstream.serve.children import Pulse

BEAT = 5.0
"""Seconds between two beats."""


async def beat(pulse: Pulse) -> None:
    while True:
        pulse.beat()
        await asyncio.sleep(BEAT)
