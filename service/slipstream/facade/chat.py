"""Whose a chat with the policy is: what the Explorer is asked for it, and what is remembered of its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from slipstream.facade.answers import Answer
from slipstream.metrics import Metrics
from slipstream.proxy.headers import Headers
from slipstream.store import facade
from slipstream.store.database import Database
from slipstream.store.tables.facade import FacadeAnswerRow


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is here in full."""

    status: int
    headers: Headers
    body: bytes


class Chat(Protocol):
    """One chat completion that passes."""

    async def request(self, body: bytes) -> bytes:
        """What the Explorer is asked, for the body that came; called before each try.

        Raises:
            RequestError: it is not to be asked.
            ExplorerUnavailable: it cannot be asked now.
        """
        ...

    def tried_again(self) -> None:
        """The Explorer was busy, away or failed, and is asked again."""
        ...

    async def asks_anew(self, status: int) -> bool:
        """The Explorer refused it. Returns whether `request` has something else to ask now."""
        ...

    async def refused(self, answer: Whole) -> None:
        """The Explorer's last word is no answer; it is passed on once this returns."""
        ...

    async def answered(self, answer: Answer, version: int | None) -> None:
        """The answer has come to its end, under this policy version; that end is passed on once this returns.

        Raises:
            RequestError: it is not to be passed on.
        """
        ...

    async def broken_off(self, answer: Answer) -> None:
        """A stream did not come to its end, or nobody was left to read it."""
        ...


class FacadeChat:
    """A chat of one of Trinity's own clients: asked as it is, and remembered for the feedback that will name it."""

    def __init__(self, database: Database, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._database = database
        self._metrics = metrics
        self._clock = clock

    async def request(self, body: bytes) -> bytes:
        return body

    def tried_again(self) -> None:
        self._metrics.facade_retries.inc()

    async def asks_anew(self, status: int) -> bool:
        return False

    async def refused(self, answer: Whole) -> None:
        """Nothing was recorded of it."""

    async def answered(self, answer: Answer, version: int | None) -> None:
        self._metrics.facade_answers.labels("not_whole" if answer.flaw else "whole").inc()
        if answer.msg_id is None:
            return  # nobody can name it
        row = FacadeAnswerRow(
            msg_id=answer.msg_id,
            choices=answer.choices,
            flaw=answer.flaw,
            policy_version=version,
            created_at=self._clock(),
        )
        async with self._database.write() as session:
            await facade.add_answer(session, row)

    async def broken_off(self, answer: Answer) -> None:
        await self.answered(answer, None)
