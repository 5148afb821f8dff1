"""One run of a task: its inputs, the agent, its reward, and its end at the sidecar."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from slipstream_client import validation
from slipstream_client.context import Context, Scope, enter
from slipstream_client.errors import SidecarAway, SlipstreamError
from slipstream_client.service import AsyncService, Request, T, finish_run, get_run
from slipstream_client.side_effects.recording import GuardedReplay
from slipstream_client.threads import instrumented
from slipstream_client.training.execution import Execution, GivenUp, Raised, Slot, TimedOut
from slipstream_client.training.rewards import Reward, RewardFunction, RunResult, checked
from slipstream_client.training.streams import has_yet_to_run
from slipstream_client.training.tasks import Task

logger = logging.getLogger("slipstream_client")

PAUSES = (0.2, 1.0)
"""Seconds before a run's end is posted again: a restart of the sidecar takes longer, but a lost packet does not."""

ENDED = ("call_failed", "dropped_by_sidecar", "run_closed", "sidecar_away")
"""The reasons that the sidecar gave, or that it cannot be told."""

MAX_ERROR = 500
"""Characters of what the sidecar is told of an error: people read it there; the log has the traceback."""


class Dropped(Exception):
    """A run is dropped; the arguments are the reason and, for people, why."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class RunExecutor:
    """Conducts runs.

    Args:
        timeout: seconds that each function of the developer's may take.
        given_up: done when the runner stops: then nothing is tried twice.
    """

    def __init__(
        self,
        service: AsyncService,
        execution: Execution,
        reward: RewardFunction | None,
        timeout: float,
        given_up: asyncio.Future[None],
    ) -> None:
        self._service = service
        self._execution = execution
        self._reward = reward
        self._timeout = timeout
        self._given_up = given_up

    async def run(self, task: Task, replay: GuardedReplay, slot: Slot) -> Dropped | None:
        """Have a run done and ended; returns why it was dropped, if it was. Raises GivenUp, and then has not ended."""
        try:
            reward = await self._rewarded(task, replay, slot)
            problem = await self._finished(replay, reward)
        except Dropped as dropped:
            problem = dropped
        except GivenUp:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must end at the sidecar
            problem = Dropped("internal", repr(error))
        finally:
            await self._close_sandboxes(task, replay, slot)
        return problem and await self.drop(replay, problem)

    async def drop(self, replay: GuardedReplay, problem: Dropped) -> Dropped:
        """Tell the sidecar why a run is dropped, where it does not know already or is away. Returns the problem."""
        if problem.reason not in ENDED:
            why = validation.clean(str(problem))[:MAX_ERROR]
            with suppress(Dropped):  # where it does not arrive, the sidecar closes the run after a time
                await self._send(finish_run(replay, error=why, side_effects=_told(replay)))
        return problem

    async def _rewarded(self, task: Task, replay: GuardedReplay, slot: Slot) -> Reward | None:
        """Run the agent, and the reward function over what it returned. Raises Dropped, GivenUp."""
        variables, scope = _in_replay(task, replay)
        args, kwargs = await self._developers("inputs", task.inputs, (), {}, variables.copy(), slot)
        began = time.monotonic()
        try:
            output = await self._developers("agent", task.agent, args, kwargs, variables, slot, scope)
        except Dropped as dropped:
            problem = _problem(replay) if dropped.reason == "agent_raised" else None
            raise problem or dropped from dropped.__cause__
        latency = time.monotonic() - began
        if (
            problem := _problem(replay)
        ) is not None:  # the agent has caught it, and went on with part of a conversation
            raise problem
        if has_yet_to_run(output):
            raise Dropped("not_ended", "agent: it returned a stream, whose calls would be made after the run's end")
        if self._reward is None:
            return None
        state = await self._send(get_run(replay))
        if state.state == "failed":
            raise Dropped("call_failed", state.error or "the sidecar says that a call failed")
        result = RunResult(
            task_id=replay.task_id,
            run_id=replay.run_id,
            args=task.snapshot[0],
            kwargs=task.snapshot[1],
            output=output,
            production_output=task.output,
            labels=task.labels,
            metadata=task.metadata,
            msg_ids=state.msg_ids,
            policy_version=state.policy_version,
            side_effects=tuple(replay.side_effects),
            sandboxes=replay.sandboxes.objects,
            latency=latency,
        )
        judge = task.variables.copy()
        scope = Scope(Context(never=True))  # a model that it asks is no part of the run, and nothing to train on
        judge.run(enter, scope)
        outcome = await self._developers("reward", self._reward, (result,), {}, judge, slot, scope)
        try:
            return checked(outcome)
        except Exception as error:
            raise Dropped("bad_reward", str(error)) from error

    async def _close_sandboxes(self, task: Task, replay: GuardedReplay, slot: Slot) -> None:
        """Leave the run's sandboxes, in a thread as a replay."""
        replay.sandboxes.end()  # an agent that did not return in time makes none any more
        if not replay.sandboxes.objects:
            return
        variables, scope = _in_replay(task, replay)
        try:
            await self._developers("sandbox", replay.sandboxes.close, (), {}, variables, slot, scope)
        except Dropped as dropped:
            logger.warning("a sandbox was not left: %s", dropped)
        except GivenUp:  # the runner stops, and the thread goes on by itself
            pass

    async def _developers(
        self,
        what: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        variables: contextvars.Context,
        slot: Slot,
        scope: Scope | None = None,
    ) -> Any:
        """Run a function of the developer and return its result; of a generator, its items.

        Args:
            scope: ends with the function: later than the run, where that did not wait for it.

        Raises:
            Dropped, GivenUp: see there.
        """
        timeout = self._timeout

        async def awaited(outcome: Awaitable[Any]) -> Any:
            with _until_it_ends(scope):
                return await outcome

        try:
            if inspect.isasyncgenfunction(function):

                async def items() -> list[Any]:
                    return [item async for item in function(*args, **kwargs)]

                return await self._execution.on_loop(lambda: awaited(items()), variables, slot, timeout)
            if inspect.iscoroutinefunction(function):
                call = partial(function, *args, **kwargs)
                return await self._execution.on_loop(lambda: awaited(call()), variables, slot, timeout)

            def called() -> Any:
                with _until_it_ends(scope) as keep:
                    outcome = function(*args, **kwargs)
                    if inspect.isawaitable(outcome):
                        keep()
                    return list(outcome) if inspect.isgenerator(outcome) else outcome

            outcome = await self._execution.in_thread(called, variables, slot, timeout)
            if inspect.isawaitable(outcome):
                return await self._execution.on_loop(lambda: awaited(outcome), variables, slot, timeout)
        except TimedOut:
            raise Dropped(f"{what}_timeout", f"{what}: more than {timeout:g} seconds") from None
        except Raised as raised:
            error = raised.__cause__
            raise Dropped(f"{what}_raised", f"{what}: {type(error).__name__}: {error}") from error
        return outcome

    async def _finished(self, replay: GuardedReplay, reward: Reward | None) -> Dropped | None:
        """End a run that went well; returns why the sidecar drops it, if it does."""
        value = reward.value if reward is not None else None
        breakdown = reward.breakdown if reward is not None else None
        request = finish_run(replay, reward=value, breakdown=breakdown, side_effects=_told(replay))
        try:
            state = (await self._send(request)).state
        except Dropped as dropped:
            if dropped.reason != "run_closed":
                return dropped
            state = (await self._send(get_run(replay))).state  # an attempt before may have arrived
            if state == "failed":
                return dropped
        if state == "failed":
            return Dropped("dropped_by_sidecar", "none of its calls came through, or one failed: see GET /runs")
        return None

    async def _send(self, request: Request[T]) -> T:
        """The sidecar's answer, after some attempts. Raises Dropped."""
        for pause in (*PAUSES, None):
            try:
                return await self._service.send(request)
            except SidecarAway as error:
                if pause is None or self._given_up.done():
                    raise Dropped("sidecar_away", str(error)) from None
                await asyncio.sleep(pause)
            except SlipstreamError as error:
                raise Dropped(getattr(error, "code", None) or "refused", str(error)) from None
            except Exception as error:
                raise Dropped("internal", repr(error)) from error
        raise AssertionError("unreachable")


def _in_replay(task: Task, replay: GuardedReplay) -> tuple[contextvars.Context, Scope]:
    """Context variables in which the task is run again, and the scope that they hold."""
    scope = Scope(
        Context(
            task_id=task.task_id,
            session_id=task.session_id,
            labels=task.labels,
            metadata=task.metadata,
            replay=replay,
        ),
    )
    variables = task.variables.copy()
    variables.run(enter, scope)
    return variables, scope


def _problem(replay: GuardedReplay) -> Dropped | None:
    """The reason to drop a run that its agent need not know."""
    problem = replay.problem
    return Dropped(problem.reason, problem.why) if problem is not None else None


@contextmanager
def _until_it_ends(scope: Scope | None) -> Iterator[Callable[[], object]]:
    """A function of the developer's, whose end is that of its scope, unless what this yields is called.

    Threads carry the scope until then, also where the runner has stopped and does not wait for it.
    """
    with instrumented(), ExitStack() as ending:
        if scope is not None:
            ending.callback(scope.close)
        yield ending.pop_all


def _told(replay: GuardedReplay) -> list[dict[str, str]]:
    return [{"tool": effect.tool, "outcome": effect.outcome} for effect in replay.side_effects]
