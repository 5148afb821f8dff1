"""A call of a decorated agent: the user's own, which a TrainingRunner may have run again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast

from slipstream_client.context import Context, current, entered
from slipstream_client.side_effects.recording import Recording

if TYPE_CHECKING:
    from slipstream_client.training.choosing import Chosen

F = TypeVar("F", bound=Callable[..., Any])


class Call:
    """One call of an agent, while it runs.

    Attributes:
        task_id: that the call and its replays belong to.
        labels, metadata: of the marks around the call, and of those inside it so far.
        never: a part of it must not be trained on.
        over: it has ended; what still runs of it, in threads that it left behind, is no part of it any more.
    """

    def __init__(self, context: Context, task_id: str, chosen: Chosen | None) -> None:
        """
        Args:
            chosen: what is told of its end; None where it does not run again.
        """
        self.task_id = task_id
        self.session_id = context.session_id
        self.labels = context.labels
        self.metadata = dict(context.metadata)
        self.never = False
        self.over = False
        self._chosen = chosen

    @property
    def recording(self) -> Recording | None:
        """What takes the results of guarded tools; None where no replay will ask for them."""
        chosen = self._chosen
        return chosen.recording if chosen is not None else None

    @property
    def observed(self) -> bool:
        """Whether anybody asks what the agent returns."""
        return self._chosen is not None

    def saw(self, context: Context) -> None:
        """A context was entered inside the call: if a mark made it, it is about this task, unless it names another."""
        self.never = self.never or context.never
        if context.task_id == self.task_id and not self.over:
            self.labels = tuple(dict.fromkeys((*self.labels, *context.labels)))
            self.metadata |= context.metadata

    def returned(self, output: Any) -> None:
        if self.never:
            self.failed("never")
        elif (chosen := self._end()) is not None:
            chosen.returned(self, output)

    def failed(self, reason: str) -> None:
        if (chosen := self._end()) is not None:
            chosen.failed(reason)

    def _end(self) -> Chosen | None:
        self.over = True
        chosen, self._chosen = self._chosen, None  # a thread that is left behind holds this call, and no more
        return chosen


Begin = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[Call, Context] | None"]
"""Begins a call with these arguments, in this context; None where it is a part of another call, or of a replay."""


def observed(function: F, begin: Begin) -> F:
    """The agent with its calls told to `begin`. What it returns and raises, and when, stays as it is."""
    if inspect.isasyncgenfunction(function):
        wrapper: Callable[..., Any] = _async_generator(function, begin)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, begin)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, begin)
    else:
        wrapper = _plain(function, begin)
    return cast(F, functools.wraps(function)(wrapper))


def _plain(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    def agent(*args: Any, **kwargs: Any) -> Any:
        begun = begin(args, kwargs)
        if begun is None:
            return function(*args, **kwargs)
        call, context = begun
        try:
            with entered(context):
                output = function(*args, **kwargs)
        except BaseException:
            call.failed("production_failed")
            raise
        if inspect.isawaitable(output) or inspect.isgenerator(output) or inspect.isasyncgen(output):
            call.failed("not_ended")  # a plain function that returns what has yet to run
        else:
            call.returned(output)
        return output

    return agent


def _coroutine(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    async def agent(*args: Any, **kwargs: Any) -> Any:
        begun = begin(args, kwargs)
        if begun is None:
            return await function(*args, **kwargs)
        call, context = begun
        try:
            with entered(context):
                output = await function(*args, **kwargs)
        except BaseException:
            call.failed("production_failed")
            raise
        call.returned(output)
        return output

    return agent


def _generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Between two items the caller runs, so the context is entered for each item anew."""

    def agent(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        begun = begin(args, kwargs)
        if begun is None:
            return (yield from function(*args, **kwargs))
        call, context = begun
        items, output = function(*args, **kwargs), []
        step = functools.partial(next, items)
        try:
            while True:
                with entered(context):
                    try:
                        item = step()
                    except StopIteration as end:
                        result = end.value
                        break
                    context = current()
                if call.observed:
                    output.append(item)
                try:
                    step = functools.partial(items.send, (yield item))
                except GeneratorExit:
                    items.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the caller, for the agent
                    step = functools.partial(items.throw, error)
        except BaseException:
            call.failed("production_failed")
            raise
        call.returned(output)
        return result

    return agent


def _async_generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    async def agent(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        begun = begin(args, kwargs)
        call, context = begun if begun is not None else (None, current())
        items, output = function(*args, **kwargs), []
        step = functools.partial(anext, items)
        try:
            while True:
                with entered(context) if call is not None else nullcontext():
                    try:
                        item = await step()
                    except StopAsyncIteration:
                        break
                    context = current()
                if call is not None and call.observed:
                    output.append(item)
                try:
                    step = functools.partial(items.asend, (yield item))
                except GeneratorExit:
                    await items.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001
                    step = functools.partial(items.athrow, error)
        except BaseException:
            if call is not None:
                call.failed("production_failed")
            raise
        if call is not None:
            call.returned(output)

    return agent
