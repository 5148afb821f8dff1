"""The `python` calculator: a function or class of one's own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from slipstream.config.units import PositiveDuration
from slipstream.errors import ScoringError
from slipstream.rewards.calculator import Outcome, Parameters
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run
from slipstream.user_code.python_object import PythonPath, check_call, load_object

Calculate = Callable[[Run], Outcome | Awaitable[Outcome]]


@calculator("python")
class Python(Parameters):
    """The result of `package.module:Object`: a function of the run, an object with `calculate`, or its class."""

    object: PythonPath
    params: dict[str, Any] = Field(default_factory=dict)
    timeout: PositiveDuration = 60.0
    threads: Annotated[int, Field(ge=1)] = 4

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"object": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        found = load_object(self.object)
        if inspect.isclass(found):
            check_call(found, None, self.params, self.object)  # made by `build`, once: that may take long
        else:
            _calculate(found, self.params, self.object)
        return self

    def build(self) -> PythonCalculator:
        return PythonCalculator(self)


class PythonCalculator:
    """Runs the object's code: coroutines on the event loop, plain code in threads of its own.

    Its own threads, so that code which never returns holds up itself alone; its runs then fail by the timeout.
    """

    def __init__(self, parameters: Python) -> None:
        self._calculate = _calculate(load_object(parameters.object), parameters.params, parameters.object)
        self._timeout = parameters.timeout
        self._threads = ThreadPoolExecutor(parameters.threads, thread_name_prefix="python-calculator")

    async def calculate(self, run: Run) -> Outcome:
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await self._outcome(run)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the code's own
            raise ScoringError(f"no reward within {self._timeout:g} s") from error
        except (asyncio.CancelledError, SystemExit) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the sidecar ends
            raise ScoringError(type(error).__name__) from error  # the code ended itself, and must not end the sidecar

    async def _outcome(self, run: Run) -> Outcome:
        if inspect.iscoroutinefunction(self._calculate):
            outcome = await self._calculate(run)
        else:
            outcome = await asyncio.get_running_loop().run_in_executor(self._threads, _plain, self._calculate, run)
            if inspect.isawaitable(outcome):
                outcome = await outcome
        return outcome  # type: ignore[no-any-return]  # checked by the reward model, like every outcome

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _plain(calculate: Calculate, run: Run) -> Any:
    try:
        return calculate(run)
    except StopIteration as error:  # a future cannot carry one: its caller would wait for ever
        raise ScoringError("StopIteration") from error
    except Exception:
        raise
    except BaseException as error:  # such as sys.exit(), which would end the whole sidecar
        raise ScoringError(type(error).__name__) from error


def _calculate(found: Any, params: dict[str, Any], path: str) -> Calculate:
    if inspect.isclass(found):
        try:
            found = found(**params)
        except Exception as error:  # the user's constructor can raise anything
            raise ValueError(
                f"an object that can be made with these params ({type(error).__name__}: {error})"
            ) from error
        params = {}
    if not hasattr(found, "calculate"):
        if not callable(found):
            raise ValueError(
                f"a function, an object with `calculate`, or a class of such objects; found {type(found).__name__}"
            )
        check_call(found, "a run", params, path)
        return partial(found, **params) if params else found
    if params:
        raise ValueError("no params: the object is made already")
    if not callable(found.calculate):
        raise ValueError("an object whose `calculate` is a method")  # noqa: TRY004 - a configuration error
    check_call(found.calculate, "a run", {}, f"{path}.calculate")
    return found.calculate  # type: ignore[no-any-return]
