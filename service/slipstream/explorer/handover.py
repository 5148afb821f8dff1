"""Handing rewards over: to the process whose counters were read, and to no other.

What an Explorer was told is in its process's memory. Where that process ends amid a delivery, the next one at its
address must not be told the rest: it would train on a part. The counters tell one from the other, but only afterwards.
A connection belongs to one process. So what has an effect goes over the connection that the counters came over; where
that one is gone, the counters are read again, over the next one, before anything is sent on it.

A gateway has connections of its own, so behind one that is no protection (`docs/contract.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from slipstream.errors import ExplorerRestarted
from slipstream.explorer.calls import SHORT, ExplorerCalls, ExplorerCounters
from slipstream.explorer.http import NotConnected
from slipstream.http.connect import ClientTls
from slipstream.memory.parsing import ParseMemory


class Handover(ExplorerCalls):
    """Hands rewards over, and has them committed; one call at a time, and `counters` first.

    Args:
        base_url: such as `http://127.0.0.1:8010`.
        parsing: the memory for answers while they are read.
        connect_timeout, commit_timeout: seconds.
    """

    def __init__(
        self,
        base_url: str,
        parsing: ParseMemory,
        *,
        connect_timeout: float,
        commit_timeout: float,
        tls: ClientTls | None = None,
    ) -> None:
        super().__init__(base_url, parsing, connect_timeout=connect_timeout, longest=commit_timeout, tls=tls)
        self._commit_timeout = commit_timeout
        self._known = ExplorerCounters(ready=0, total=0, step=0, version=None, newest=None)

    async def counters(self) -> ExplorerCounters:
        self._known = await super().counters()
        return self._known

    async def feedback(
        self, *, msg_id: str, reward: float, task_id: str, run_id: int, allowed: Callable[[], None]
    ) -> None:
        """Hand over one reward. One at a time: Trinity's table races on concurrent duplicates.

        Args:
            allowed: called right before it is sent; what it raises keeps it from being sent.

        Raises:
            ValueError: the reward is not finite. Trinity would take it and train on it.
            ExplorerRestarted: it was not sent, because the process that was told the others is gone.
        """
        if not math.isfinite(reward):
            raise ValueError(f"reward {reward} of {msg_id} is not finite")
        body = {"msg_ids": [msg_id], "reward": reward, "task_id": task_id, "run_id": run_id}
        await self._tell("/feedback", SHORT, body, allowed)

    async def commit(self, *, allowed: Callable[[], None]) -> None:
        """Hand the rewarded experiences to the Trainer; `allowed` as in `feedback`.

        Raises:
            ExplorerRestarted: as in `feedback`.
        """
        await self._tell("/commit", self._commit_timeout, {}, allowed)

    async def _tell(self, path: str, seconds: float, body: Mapping[str, Any], allowed: Callable[[], None]) -> None:
        try:
            await self._call("POST", path, seconds, body, allowed=allowed, connected=True)
        except NotConnected:  # it was idle for long, or its process is gone
            before, now = self._known, await self.counters()
            if now.restarted_since(before.ready, before.total, before.step):
                raise ExplorerRestarted("another process answers by now") from None
            # on the same connection, unless the Explorer keeps none open
            await self._call("POST", path, seconds, body, allowed=allowed)
