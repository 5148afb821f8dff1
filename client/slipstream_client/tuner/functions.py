"""Workflow and judge functions: what they return, how they are checked, and how one run of them is made.

The signatures are those of AgentScope's tuner (agentscope 1.0). Plain functions are taken as well as async ones.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, Field

WorkflowType = Callable[..., Any]
"""`workflow(task, model[, auxiliary_models][, logger]) -> WorkflowOutput`, async or plain.

`task` is a row of the dataset, `model` the model that is tuned, bound to this run, and `auxiliary_models` the models
that are not tuned, by name.
"""

JudgeType = Callable[..., Any]
"""`judge(task, response[, auxiliary_models][, logger]) -> JudgeOutput`, async or plain.

`response` is the workflow's."""


class WorkflowOutput(BaseModel):
    """Result of one run of a workflow."""

    reward: float | None = Field(
        default=None, allow_inf_nan=False, description="The run's reward, where no judge function gives it."
    )
    response: Any | None = Field(default=None, description="What the judge function is to judge.")
    metrics: dict[str, float] | None = Field(default=None, description="Numbers to watch beside the reward.")


class JudgeOutput(BaseModel):
    """Verdict of a judge on a workflow's response."""

    reward: float = Field(allow_inf_nan=False, description="The run's reward.")
    metrics: dict[str, float] | None = Field(default=None, description="Numbers to watch beside the reward.")


@dataclass(frozen=True)
class Outcome:
    """A run with its reward. `metrics` are the workflow's and the judge's; the judge's win."""

    reward: float
    metrics: Mapping[str, float]
    response: Any


def check_workflow_function(func: Callable[..., Any]) -> None:
    """Checks that it takes `task` and `model`, and nothing else but `auxiliary_models` and `logger`.

    Raises:
        ValueError: it does not; the parameters are named.
    """
    check_parameters(func, "workflow function", ("task", "model"), ("auxiliary_models", "logger"))


def check_judge_function(func: Callable[..., Any]) -> None:
    """Checks that it takes `task` and `response`, and nothing else but `auxiliary_models` and `logger`.

    Raises:
        ValueError: it does not; the parameters are named.
    """
    check_parameters(func, "judge function", ("task", "response"), ("auxiliary_models", "logger"))


def check_parameters(
    func: Callable[..., Any], what: str, required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Checks a function that is called with `required`, and with those of `optional` that it names.

    Raises:
        TypeError: `func` is no function.
        ValueError: parameters are missing, unknown, or cannot be given by name; they are named, and so is `what`.
    """
    if not callable(func):
        raise TypeError(f"{what}: expected a function, found {func!r}")
    name = f"{what} {getattr(func, '__name__', type(func).__name__)!r}"
    parameters = inspect.signature(func).parameters
    for parameter in parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise ValueError(f"{name}: *{parameter.name} is not allowed, name the parameters")
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise ValueError(f"{name}: **{parameter.name} is not allowed, name the parameters")
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ValueError(f"{name}: {parameter.name!r} is positional-only, it is given by name")
    if missing := [each for each in required if each not in parameters]:
        raise ValueError(f"{name}: missing parameters {missing}; it needs {[*required]}")
    if unknown := [each for each in parameters if each not in {*required, *optional}]:
        raise ValueError(f"{name}: unknown parameters {unknown}; it may take {[*required, *optional]}")


async def run_once(workflow_func: WorkflowType, judge_func: JudgeType | None, **offered: Any) -> Outcome:
    """Runs a workflow on a task and has its response judged.

    Args:
        workflow_func: called with those of `offered` that it names.
        judge_func: called with the response and those of `offered` that it names; None: the workflow gives the reward.
        offered: `task`, `model`, `auxiliary_models`, `logger`, and what else workflows of this kind may take.

    Raises:
        TypeError: a function returned something else than it should.
        ValueError: nobody gave a reward.
        Exception: what a function raised.
    """
    output = await call(workflow_func, **offered)
    if not isinstance(output, WorkflowOutput):
        raise TypeError(f"the workflow function returned {kind_of(output)}, expected slipstream_client.WorkflowOutput")
    reward, metrics = output.reward, {**(output.metrics or {})}
    if judge_func is not None:
        judged = await call(judge_func, **{**offered, "response": output.response})
        if not isinstance(judged, JudgeOutput):
            raise TypeError(f"the judge function returned {kind_of(judged)}, expected slipstream_client.JudgeOutput")
        reward = judged.reward
        metrics |= judged.metrics or {}
    if reward is None:
        raise ValueError("WorkflowOutput.reward: expected a number, as there is no judge function; found None")
    if not math.isfinite(reward):  # set after the output was made, which checks it
        raise ValueError(f"reward: expected a finite number, found {reward}")
    return Outcome(reward, metrics, output.response)


async def call(function: Callable[..., Any], **offered: Any) -> Any:
    """Calls it with those of `offered` that it names: an async function here, a plain one in a thread of its own.

    Raises:
        RuntimeError: it would have ended the program or the task around it: that is for its caller to do.
        Exception: what it raised.
    """
    names = inspect.signature(function).parameters
    bound = partial(function, **{name: value for name, value in offered.items() if name in names})
    try:
        returned = bound() if inspect.iscoroutinefunction(function) else await _in_thread(bound)
        return await returned if inspect.isawaitable(returned) else returned
    except SystemExit as error:
        raise RuntimeError(f"it exited with {error.code!r}") from error
    except asyncio.CancelledError as error:
        if _cancelled():
            raise
        raise RuntimeError(f"something that it waited for was cancelled: {error}") from error


def _cancelled() -> bool:
    """Return whether the current task itself is cancelled. Before Python 3.11 that cannot be told: yes."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is None or cancelling() > 0


async def _in_thread(function: Callable[[], Any]) -> Any:
    """A daemon thread, unlike those of an executor: a function that hangs does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except StopIteration as raised:  # which no future takes
            error = RuntimeError("it raised StopIteration")
            error.__cause__ = raised
        except BaseException as raised:  # noqa: BLE001 - it is the caller's, in the other thread
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="workflow", daemon=True).start()
    return await done


def kind_of(value: Any) -> str:
    """The full name of its class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"
