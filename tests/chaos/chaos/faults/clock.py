"""A clock that is set while the sidecars run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from chaos.faults.fault import fault

if TYPE_CHECKING:
    from chaos.world import World

CLOCK_IS_READ = 1
"""Seconds between two looks of a process at what its clock is to say."""


def _clock(name: str, what: str, seconds: int) -> None:
    @fault(name, what)
    async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
        if world.clock is None:
            world.impossible[name] += 1
            yield
            return
        world.clock.write_text(f"{rng.randint(1, 30) * seconds:+d}")
        await asyncio.sleep(CLOCK_IS_READ)
        world.struck[name] += 1
        yield
        world.clock.write_text("+0")
        await asyncio.sleep(CLOCK_IS_READ)


_clock("clock_forward", "the sidecars' clock is set forward, up to half an hour, and back", 60)
_clock("clock_back", "the sidecars' clock is set back, up to half an hour, and forward", -60)
