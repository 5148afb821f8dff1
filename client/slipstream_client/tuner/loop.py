"""The loop: runs of a step's tasks, their rewards to the Explorer, a commit, and the version that comes of it."""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tqdm import tqdm

from slipstream_client.tuner.board import Board
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.explorer import Explorer, Feedback, Refused
from slipstream_client.tuner.progress import Progress
from slipstream_client.tuner.rollouts import Failure, Group, Rollouts, Run, Task
from slipstream_client.tuner.waiting import Wait

logger = logging.getLogger(__name__)

_POLL = 0.2  # seconds between two looks for a new version
_LOOK = 1.0  # seconds between two looks at whether the engine is there


@dataclass(frozen=True)
class Schedule:
    """Plan of which steps and evaluations run when.

    Attributes:
        steps: how many in all.
        batch_size: tasks of a step.
        group_size: runs of a task.
        least: runs that a group must have left to be learned from.
        evaluate_every: steps.
        seed: of the order of the tasks, another in each epoch; None: as they are.
        sync_timeout: seconds that the next version is waited for.
    """

    steps: int
    batch_size: int
    group_size: int
    least: int
    evaluate_every: int
    seed: int | None
    sync_timeout: float

    def tasks(self, step: int, dataset: Sequence[Task], total: int) -> list[Task]:
        """Those of a step, counted from 1: the epochs are one after the other, cut into batches, `total` in all."""
        first = (step - 1) * self.batch_size
        numbers = range(first, min(first + self.batch_size, total))
        return [dataset[self._place(*divmod(number, len(dataset)), len(dataset))] for number in numbers]

    def _place(self, epoch: int, index: int, size: int) -> int:
        return index if self.seed is None else _order(self.seed, epoch, size)[index]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, size: int) -> list[int]:
    order = list(range(size))
    random.Random(f"{seed}:{epoch}").shuffle(order)  # noqa: S311 - an order, no secret
    return order


@dataclass(frozen=True)
class Loop:
    """One `tune`.

    Attributes:
        total: tasks in all epochs.
        check: is called now and then, and raises when it makes no sense to go on.
    """

    schedule: Schedule
    train: Sequence[Task]
    total: int
    evaluation: Sequence[Task] | None
    rollouts: Rollouts
    explorer: Explorer
    progress: Progress
    board: Board
    check: Callable[[], None]

    async def run(self) -> None:
        """Goes on from where the experiment is, up to its last step.

        Raises:
            TunerError: the Explorer cannot be told, or no run of a step came to its end.
        """
        await self._finish_sending()
        with tqdm(total=self.schedule.steps, initial=self.progress.step, desc="steps", unit="step") as bar:
            await self._evaluate_if_due()
            while self.progress.step < self.schedule.steps:
                await self._step(self.progress.step + 1)
                bar.update()
                bar.set_postfix(reward=f"{self.progress.steps[-1]['reward']:.3f}")
                await self._evaluate_if_due()

    async def _step(self, number: int) -> None:
        began = time.monotonic()
        tasks = self.schedule.tasks(number, self.train, self.total)
        before = await self.explorer.version()
        groups = await self._groups(tasks, self.schedule.group_size, f"step {number}")
        runs = [run for group in groups for run in group if isinstance(run, Run)]
        failures = [run.reason for group in groups for run in group if isinstance(run, Failure)]
        if failures:
            tqdm.write(f"step {number}: {len(failures)} of {len(failures) + len(runs)} runs dropped, as: {failures[0]}")
        self.check()  # a local engine that has ended is why runs were dropped
        if not runs:
            raise TunerError(
                f"step {number}: each of its {len(failures)} runs was dropped; the first: {failures[0]} "
                f"(all of them, with tracebacks: {self.progress.folder / 'tuner.log'})"
            )
        feedback = self._feedback(groups, number)
        step = {
            "step": number,
            "version": before,
            **_means(runs),
            "runs": len(runs),
            "dropped": len(failures),
            "fed_back": len(feedback),
            "seconds": round(time.monotonic() - began, 3),
        }
        self.progress.deliver(feedback, step)
        await self._finish_sending()

    async def _finish_sending(self) -> None:
        if (sending := self.progress.sending) is None:
            return
        feedback, step = sending
        try:
            for each in feedback:
                await self.explorer.feedback(each)
        except Refused:
            self.progress.take_back()
            raise
        began = time.monotonic()
        if feedback:
            await self.explorer.commit()
            await self._synced(step["version"])
        self.progress.settle(step)
        said = {**_scalars("rollout", step), "rollout/sync_seconds": time.monotonic() - began}
        self.board.scalars(step["step"], said)

    async def _synced(self, before: int) -> None:
        """Waits for a version after `before`, so that the next step's runs are by the policy that learned of these."""
        deadline = time.monotonic() + self.schedule.sync_timeout
        wait = Wait(f"a version after {before}, which is being trained")
        while await self.explorer.version() <= before:
            self.check()
            wait.goes_on()
            if time.monotonic() > deadline:
                said = f"no version after {before} within {self.schedule.sync_timeout:g} s: going on with that one"
                logger.warning(said)
                tqdm.write(said)
                return
            await asyncio.sleep(_POLL)

    def _feedback(self, groups: Iterable[Group], number: int) -> list[Feedback]:
        """Make the feedback of each group with enough runs left. Its name is new each time: a step that is run again
        has other groups."""
        feedback = []
        attempt = uuid.uuid4().hex[:12]
        for index, group in enumerate(groups):
            runs = {run_id: run for run_id, run in enumerate(group) if isinstance(run, Run)}
            if len(runs) >= self.schedule.least:
                feedback += [
                    Feedback(run.msg_ids, run.outcome.reward, f"{attempt}-{number}-{index}", run_id, len(runs))
                    for run_id, run in runs.items()
                ]
        return feedback

    async def _evaluate_if_due(self) -> None:
        step = self.progress.step
        due = step % self.schedule.evaluate_every == 0 or step >= self.schedule.steps
        done = any(each["step"] == step for each in self.progress.evaluations)
        if self.evaluation is None or not due or done:
            return
        began = time.monotonic()
        version = await self.explorer.version()
        groups = await self._groups(self.evaluation, 1, f"evaluation after step {step}")
        runs = [run for group in groups for run in group if isinstance(run, Run)]
        if not runs:
            reasons = [run.reason for group in groups for run in group if isinstance(run, Failure)]
            raise TunerError(f"evaluation after step {step}: each run was dropped; the first: {reasons[0]}")
        evaluation = {
            "step": step,
            "version": version,
            **_means(runs),
            "runs": len(runs),
            "dropped": len(groups) - len(runs),
            "seconds": round(time.monotonic() - began, 3),
        }
        self.progress.evaluated(evaluation)
        self.board.scalars(step, _scalars("eval", evaluation))
        tqdm.write(f"evaluation after step {step}: reward {evaluation['reward']:.4f} over {len(runs)} tasks")

    async def _groups(self, tasks: Sequence[Task], size: int, what: str) -> list[Group]:
        self.check()
        with tqdm(total=len(tasks) * size, desc=what, unit="run", leave=False) as bar:
            groups = asyncio.create_task(self.rollouts.groups(tasks, size, bar.update))
            try:
                while not (await asyncio.wait([groups], timeout=_LOOK))[0]:
                    self.check()  # or each run would wait for an engine that has ended
            finally:
                groups.cancel()
            return groups.result()


def _scalars(kind: str, said: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a step or an evaluation, as TensorBoard names them."""
    numbers = {**said["metrics"], **said}
    return {f"{kind}/{name}": value for name, value in numbers.items() if name not in ("step", "metrics")}


def _means(runs: Sequence[Run]) -> dict[str, Any]:
    """The mean reward, and of each metric over the runs that have it."""
    metrics: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, value in run.outcome.metrics.items():
            metrics[name].append(value)
    return {
        "reward": statistics.fmean(run.outcome.reward for run in runs),
        "metrics": {name: statistics.fmean(values) for name, values in metrics.items()},
    }
