"""The main job: the agent works, the policy learns from it, and held-out tasks tell how much."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
from agent import Agent
from reward import Score, mean, verify
from services import Services
from tasks import TASKS_A_STEP, Task, held_out_tasks, training_tasks

_POLL_SECONDS = 0.3


Seen = TypeVar("Seen")


class DemoError(Exception):
    """The loop did not close; the message says where it stopped."""


@dataclass(frozen=True)
class Step:
    """One round of tasks and what came of it.

    Attributes:
        version: the newer version that was served after it.
        score: the mean over the policy's runs in it.
    """

    version: int
    score: Score
    seconds: float


@dataclass
class History:
    """Results of the run so far: scores on held-out tasks by version, and each step's on its training tasks."""

    production: Score | None = None
    policy: dict[int, Score] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Size of a run.

    Attributes:
        step_seconds: far above what each part of a step takes; after that, something is wrong.
        tasks_a_step: with the eight runs of each they are the Trainer's batch.
    """

    seed: int
    steps: int
    measure_every: int
    held_out: int
    step_seconds: float = 300.0
    tasks_a_step: int = TASKS_A_STEP


async def learn(plan: Plan, services: Services, model: str, history: History, say: Callable[[str], None]) -> None:
    """Fills in `history` step by step.

    Raises:
        DemoError: a step did not lead to a new version in time.
    """
    held_out = held_out_tasks(plan.held_out)
    training = training_tasks(plan.seed, plan.steps * plan.tasks_a_step, held_out)
    agent = Agent(services.agent_url, model)
    on_policy = Agent(services.policy_url, model)
    async with httpx.AsyncClient(base_url=services.sidecar_url, timeout=30, trust_env=False) as sidecar:
        await ready(sidecar)
        say(f"measuring production and the policy on {plan.held_out} held-out tasks, before any training")
        history.production = await _measure(agent, held_out)
        say(f"production: {_words(history.production)}")
        history.policy[0] = await _measure(on_policy, held_out)
        say(f"policy version 0: {_words(history.policy[0])}")
        version = 0
        for number in range(1, plan.steps + 1):
            began = time.monotonic()
            chosen = training[(number - 1) * plan.tasks_a_step : number * plan.tasks_a_step]
            names = [f"seed-{plan.seed}-step-{number}-task-{index}" for index in range(len(chosen))]
            await asyncio.gather(*map(_train_on, [agent] * len(chosen), names, chosen))
            delivered = await _delivered(sidecar, names, plan.step_seconds)
            version = await _newer_version(sidecar, version, plan.step_seconds)
            score = _score_of(delivered)
            history.steps.append(Step(version, score, time.monotonic() - began))
            say(f"step {number:2} of {plan.steps}: {_words(score)} in training  ({history.steps[-1].seconds:.0f} s)")
            if number % plan.measure_every == 0 or number == plan.steps:
                history.policy[version] = await _measure(on_policy, held_out)
                say(f"policy version {version}: {_words(history.policy[version])}")
        history.counts = _counts((await sidecar.get("/status")).json(), agent.calls, plan)
    await agent.close()
    await on_policy.close()


async def _train_on(agent: Agent, name: str, task: Task) -> None:
    """A user's question with a known answer: marked, so that the sidecar lets the policy learn from it."""
    await agent.answer(
        task.question,
        {
            "x-slipstream-task-id": name,
            "x-slipstream-mark": "demo",
            "x-slipstream-metadata": json.dumps({"reference": task.reference}),
        },
    )


async def _measure(agent: Agent, tasks: Sequence[Task]) -> Score:
    replies = await asyncio.gather(*(agent.answer(task.question) for task in tasks))
    return mean(verify(reply, task.reference) for reply, task in zip(replies, tasks, strict=True))


async def ready(sidecar: httpx.AsyncClient) -> None:
    """Waits until the sidecar is. It starts last, so the others are ready when it is."""
    while True:
        try:
            if (await sidecar.get("/readyz")).is_success:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(_POLL_SECONDS)


async def _delivered(sidecar: httpx.AsyncClient, task_ids: Sequence[str], within: float) -> list[dict[str, Any]]:
    """Waits until every run of these tasks was delivered; returns the tasks as the sidecar tells of them."""

    async def look() -> list[dict[str, Any]] | None:
        answers = [await sidecar.get(f"/tasks/{task_id}") for task_id in task_ids]
        tasks = [answer.json() for answer in answers if answer.is_success]
        groups = [group for task in tasks for group in task["groups"]]
        whole = len(tasks) == len(task_ids) and all(task["groups"] for task in tasks)
        return tasks if whole and all(group["state"] == "delivered" for group in groups) else None

    return await _until(sidecar, look, f"delivery of {', '.join(task_ids)}", within)


async def _newer_version(sidecar: httpx.AsyncClient, version: int, within: float) -> int:
    """Waits until the policy that is served is newer than `version`; returns its version."""

    async def look() -> int | None:
        served: int = (await sidecar.get("/status")).json()["policy"]["version"] or 0
        return served if served > version else None

    return await _until(sidecar, look, f"version after {version}", within)


async def _until(
    sidecar: httpx.AsyncClient, look: Callable[[], Awaitable[Seen | None]], what: str, within: float
) -> Seen:
    deadline = time.monotonic() + within
    while (seen := await look()) is None:
        if time.monotonic() > deadline:
            status = (await sidecar.get("/status")).text
            raise DemoError(f"no {what} within {within:g} s; the sidecar's status:\n{status}")
        await asyncio.sleep(_POLL_SECONDS)
    return seen


def _score_of(tasks: Sequence[dict[str, Any]]) -> Score:
    """The mean over the policy's runs of these tasks."""
    return mean(
        Score(reward=run["reward"], called=run["breakdown"]["python.called"])
        for task in tasks
        for group in task["groups"]
        for run in group["runs"]
        if run["state"] == "scored"
    )


def _counts(status: dict[str, Any], calls: int, plan: Plan) -> dict[str, int]:
    return {
        "calls": calls,
        "runs": status["experiences_delivered"],  # each that was scored is one
        "commits": status["commits"].get("delivered", 0),
        "steps": plan.steps,
    }


def _words(score: Score) -> str:
    return f"reward {score.reward:.2f} (tool called {score.called:.2f})"
