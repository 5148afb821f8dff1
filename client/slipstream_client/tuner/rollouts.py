"""The runs of one step: each task several times, side by side, each with its reward."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream_client.tuner.calls import Calls, RunFailed
from slipstream_client.tuner.functions import JudgeType, Outcome, WorkflowType, run_once
from slipstream_client.tuner.gateway import Gateway, Upstream
from slipstream_client.tuner.model import TunerModel

logger = logging.getLogger(__name__)

Task = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One that came to its end: the answers it was made of, in order, and what it is worth."""

    msg_ids: tuple[str, ...]
    outcome: Outcome


@dataclass(frozen=True)
class Failure:
    """A run that is dropped, and why."""

    reason: str


Group = Sequence[Run | Failure]
"""The runs of one task, in the order of their run_ids."""


@dataclass(frozen=True)
class Rollouts:
    """Runs a workflow on the policy model.

    Attributes:
        concurrency: most runs at once.
        timeout: seconds that a run may take.
        log: what a workflow gets for its `logger`.
    """

    workflow: WorkflowType
    judge: JudgeType | None
    gateway: Gateway
    policy: Upstream
    auxiliary: Mapping[str, Upstream]
    concurrency: int
    timeout: float
    log: logging.Logger = logger

    async def groups(self, tasks: Sequence[Task], size: int, ended: Callable[[], object]) -> list[Group]:
        """Runs each task `size` times; `ended` is called at the end of each run."""
        room = asyncio.Semaphore(self.concurrency)

        async def run(task: Task) -> Run | Failure:
            async with room:
                result = await self._run(task)
            ended()
            return result

        runs = [asyncio.create_task(run(task)) for task in tasks for _ in range(size)]
        try:
            results = await asyncio.gather(*runs)
        finally:
            for each in runs:
                each.cancel()
        return [results[first : first + size] for first in range(0, len(results), size)]

    async def _run(self, task: Task) -> Run | Failure:
        calls = Calls()
        try:
            outcome = await asyncio.wait_for(self.outcome(task, calls), self.timeout)
            return Run(tuple(calls.close()), outcome)
        except RunFailed as error:
            reason = str(error)
            logger.warning("a run was dropped: %s", reason)
        except asyncio.TimeoutError as error:  # noqa: UP041 - another class before Python 3.11
            reason = f"TimeoutError: {error}" if str(error) else f"it took longer than {self.timeout:g} s"
            logger.warning("a run was dropped: %s", reason)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            logger.warning("a run was dropped: %s", reason, exc_info=error)
        finally:
            with contextlib.suppress(RunFailed):
                calls.close()  # what still asks in its name is refused
        return Failure(reason)

    async def outcome(self, task: Task, calls: Calls) -> Outcome:
        """One run, whose calls are put down in `calls`. Raises what the workflow or the judge raises."""
        async with contextlib.AsyncExitStack() as stack:

            def model(upstream: Upstream, calls: Calls | None) -> TunerModel:
                base_url = stack.enter_context(self.gateway.route(upstream, calls))
                made = TunerModel(base_url, upstream.model, self.timeout)
                stack.push_async_callback(made.close)
                return made

            return await run_once(
                self.workflow,
                self.judge,
                task=copy.deepcopy(dict(task)),  # what is in it too: a run appends to its messages
                model=model(self.policy, calls),
                auxiliary_models={name: model(each, None) for name, each in self.auxiliary.items()},
                logger=self.log,
            )
