"""Simulated users: each asks one question, for as long as the demo goes on, and notes how good its answer was."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from agent import Agent
from reward import Score, verify
from tasks import Task

MOST_AT_ONCE = 16
_PAUSE = 2.0  # mean seconds until the next user comes in the place of one who has left, while few come


@dataclass(frozen=True)
class Answered:
    """One user's answer.

    Attributes:
        at: when it came, in seconds since the users began to come.
        by: `production` or `version:N`.
    """

    at: float
    by: str
    score: Score


class Users:
    """Users who come one after the other, some at the same time, so that a slow machine has no queue of them.

    Args:
        tasks: their questions; they begin again when all were asked.

    Attributes:
        began_at: when they began to come, Unix seconds.
        at_once: users at the same time, at most `MOST_AT_ONCE`. With fewer there is a pause between two of them.
        answered: what they got so far.
    """

    def __init__(self, agent: Agent, tasks: Sequence[Task], seed: int, at_once: int) -> None:
        self._agent = agent
        self._tasks = tasks
        self._numbers = count(1)
        self._random = Random(seed)
        self._began, self.began_at = time.monotonic(), time.time()
        self._awaited, self._reached = 0, asyncio.Event()
        self.at_once = at_once
        self.answered: list[Answered] = []

    async def come(self) -> None:
        """Has users ask until it is cancelled; it ends by itself only with the error of a user who got no answer."""
        await asyncio.gather(*map(self._one_after_the_other, range(MOST_AT_ONCE)))

    async def more(self, answers: int) -> None:
        """Waits until so many further answers were given."""
        self._awaited, self._reached = len(self.answered) + answers, asyncio.Event()
        await self._reached.wait()

    async def _one_after_the_other(self, place: int) -> None:
        while True:
            if self.at_once < MOST_AT_ONCE:
                await asyncio.sleep(self._random.uniform(0, 2 * _PAUSE))
            if place < self.at_once:
                await self._ask(next(self._numbers))

    async def _ask(self, number: int) -> None:
        task = self._tasks[number % len(self._tasks)]
        headers = {
            "x-slipstream-session-id": f"user-{number}",
            "x-slipstream-metadata": json.dumps({"reference": task.reference}),
            "x-slipstream-variant": "?1",
        }
        reply, by = await self._agent.ask(task.question, headers)
        score = verify(reply, task.reference)
        self.answered.append(Answered(time.monotonic() - self._began, by or "production", score))
        if len(self.answered) >= self._awaited:
            self._reached.set()
