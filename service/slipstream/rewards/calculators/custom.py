"""The `python` calculator: a function or class of one's own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from slipstream.config.units import PositiveDuration
from slipstream.isolation import Isolation, NotFinished, Pool, Raised
from slipstream.rewards.calculator import Outcome, Parameters, Reward, checked
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run
from slipstream.user_code.python_object import PythonPath, check_call, load_object, may_import

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
        if not may_import():
            return self
        found = load_object(self.object)
        if inspect.isclass(found):
            check_call(found, None, self.params, self.object)  # made by `build`, once: that may take long
        else:
            _calculate(found, self.params, self.object)
        return self

    def build(self, isolation: Isolation) -> PythonCalculator:
        return PythonCalculator(self, isolation.user)


class PythonCalculator:
    """Runs the object's code in the process of the user's code: coroutines side by side, plain code in threads."""

    def __init__(self, parameters: Python, pool: Pool) -> None:
        self._named = parameters.object, parameters.params
        self._timeout = parameters.timeout
        self._pool = pool
        pool.prepare(_is_async, *self._named)
        try:
            waits = pool.call(_is_async, *self._named, timeout=pool.start_timeout)
        except Raised as error:
            raise ValueError(error.said) from error
        except NotFinished as error:
            raise ValueError(f"an object that can be made; found that {error}") from error
        self._room = contextlib.nullcontext() if waits else asyncio.Semaphore(parameters.threads)

    async def calculate(self, run: Run) -> Outcome:
        async with self._room:
            reward: Reward = await self._pool.ask(_asked, *self._named, run, timeout=self._timeout)
        return reward

    async def aclose(self) -> None:
        """Nothing to close."""


_made: dict[str, Calculate] = {}
"""In the process of the user's code: the objects by name and parameters. Each is made once."""


def _object(path: str, params: dict[str, Any]) -> Calculate:
    name = f"{path} {params!r}"
    if name not in _made:
        _made[name] = _calculate(load_object(path), params, path)
    return _made[name]


def _is_async(path: str, params: dict[str, Any]) -> bool:
    return inspect.iscoroutinefunction(_object(path, params))


def _asked(path: str, params: dict[str, Any], run: Run) -> Reward | Awaitable[Reward]:
    outcome = _object(path, params)(run)
    return _checked(outcome) if inspect.isawaitable(outcome) else checked(outcome)


async def _checked(outcome: Awaitable[Outcome]) -> Reward:
    return checked(await outcome)


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
