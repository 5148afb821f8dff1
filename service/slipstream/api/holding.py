"""Memory for an answer that holds what was said, until it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated

from fastapi import Depends

from slipstream.api.context import SidecarDep
from slipstream.memory.parsing import PATIENCE, Share
from slipstream.store.task_views import Hold


async def _hold(sidecar: SidecarDep) -> AsyncIterator[Hold]:
    """Give out memory for a view, which is held until that is written as JSON."""
    async with AsyncExitStack() as held:

        async def hold(size: int) -> None:
            memory = sidecar.context.parsing.held(size, Share.CONTROL, patience=PATIENCE)
            await held.enter_async_context(memory)

        yield hold


HoldDep = Annotated[Hold, Depends(_hold)]
"""Waits for so many bytes of memory, which are held until the answer is written; called once for an answer."""
