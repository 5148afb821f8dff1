"""The job of `make demo-rollout`: users ask, the policy learns, a better version is rolled out, and then a bad one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from agent import Agent
from canary import Decision, kept, roll_out
from learning import History, Plan, learn, ready
from services import Services
from spoiled import publish_spoiled
from tasks import held_out_tasks, training_tasks
from users import MOST_AT_ONCE, Users

_USERS_SEED = 50_000  # far from the seeds of the training and of the held-out tasks
_QUESTIONS = 3000
_WHILE_LEARNING = 2  # users at the same time: the Trainer needs the cores
_HELD_OUT = 16
_AFTERWARDS = 60  # answers after the end of a rollout, so that the chart shows what users have of it


@dataclass
class Live:
    """One run of the job, and its results so far.

    Attributes:
        steps: of training, each of 32 answers.
        model: the directory of the model that everything begins with.
        job_folder: the Trainer's.
        decisions: all, in their order.
        ends: the two that end the rollouts.
    """

    seed: int
    steps: int
    services: Services
    model: str
    job_folder: Path
    say: Callable[[str], None]
    users: Users | None = None
    history: History = field(default_factory=History)
    decisions: list[Decision] = field(default_factory=list)
    ends: list[Decision] = field(default_factory=list)

    async def go(self) -> None:
        """Goes through all of it, while users ask.

        Raises:
            DemoError: something did not come in time.
            OpenAIError: a user got no answer.
        """
        held_out = held_out_tasks(_HELD_OUT)
        not_theirs = [*held_out, *training_tasks(self.seed, 4 * self.steps, held_out)]
        agent = Agent(self.services.agent_url, self.model)
        async with httpx.AsyncClient(base_url=self.services.sidecar_url, timeout=60, trust_env=False) as sidecar:
            await ready(sidecar)
            questions = training_tasks(_USERS_SEED + self.seed, _QUESTIONS, not_theirs)
            self.users = users = Users(agent, questions, self.seed, _WHILE_LEARNING)
            coming, operating = asyncio.create_task(users.come()), asyncio.create_task(self._operate(sidecar, users))
            try:
                await asyncio.wait((coming, operating), return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    coming.result()  # raises: users come until they are stopped
                await operating
            finally:
                coming.cancel()
                operating.cancel()
                await asyncio.gather(coming, operating, return_exceptions=True)
        await agent.close()

    async def _operate(self, sidecar: httpx.AsyncClient, users: Users) -> None:
        plan = Plan(self.seed, self.steps, measure_every=self.steps, held_out=_HELD_OUT, step_seconds=900)
        await learn(plan, self.services, self.model, self.history, self.say)
        users.at_once = MOST_AT_ONCE
        good = max(self.history.policy)
        await kept(sidecar, good)
        self.say(f"version {good} is kept, and begins to answer users")
        self.ends.append(await roll_out(sidecar, good, self._tell))
        (await sidecar.put("/aliases/champion", json={"version": good})).raise_for_status()
        await users.more(_AFTERWARDS)
        bad = await asyncio.to_thread(publish_spoiled, self.job_folder, good, self.seed)
        await kept(sidecar, bad)
        self.say(f"version {bad} is kept, whose weights are spoiled; it takes the place of version {good}")
        self.ends.append(await roll_out(sidecar, bad, self._tell, replace=True))
        await users.more(_AFTERWARDS)

    def _tell(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.say(f"{decision.label} ({decision.reason})")
