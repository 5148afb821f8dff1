"""A call of a decorated agent: the user's own, which a TrainingRunner may have run again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from slipstream_client.context import Context, Scope, carried, handle, inside
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
        self._chosen = chosen

    @property
    def recording(self) -> Recording | None:
        """Return the recording for results of guarded tools; None if no replay will ask for them."""
        chosen = self._chosen
        return chosen.recording if chosen is not None else None

    @property
    def observed(self) -> bool:
        """True if the agent's result is wanted: a runner has chosen the call."""
        return self._chosen is not None

    def context(self) -> Context:
        """Return the context that holds inside the call."""
        return Context(task_id=self.task_id, call=self)

    def saw(self, context: Context) -> None:
        """A context was entered inside the call: if a mark made it, it is about this task, unless it names another."""
        self.never = self.never or context.never
        if context.task_id == self.task_id:
            self.labels = tuple(dict.fromkeys((*self.labels, *context.labels)))
            self.metadata |= context.metadata

    def returned(self, output: Any) -> None:
        if (chosen := self._end()) is None:  # results of calls that are not chosen are not looked at
            return
        if self.never:
            chosen.failed("never")
        else:
            chosen.returned(self, output)

    def failed(self, reason: str) -> None:
        if (chosen := self._end()) is not None:
            chosen.failed(reason)

    def _end(self) -> Chosen | None:
        chosen, self._chosen = self._chosen, None  # a thread that is left behind holds this call, and no more
        return chosen


Begin = Callable[[tuple[Any, ...], dict[str, Any]], "Call | None"]
"""Begins a call with these arguments; None where it is a part of another call, or of a replay."""


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
        call = begin(args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        try:
            with inside(call.context()):
                output = function(*args, **kwargs)
        except BaseException:
            call.failed("production_failed")
            raise
        call.returned(output)
        return output

    return agent


def _coroutine(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    async def agent(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        if call is None:
            return await function(*args, **kwargs)
        try:
            with inside(call.context()):
                output = await function(*args, **kwargs)
        except BaseException:
            call.failed("production_failed")
            raise
        call.returned(output)
        return output

    return agent


def _generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Between two items the caller runs, so the scope is entered for each item anew."""

    def agent(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = begin(args, kwargs)
        if call is None:
            return (yield from function(*args, **kwargs))
        steps = _Steps(call)
        items, output = function(*args, **kwargs), []
        step = functools.partial(next, items)
        try:
            while True:
                with steps.one():
                    try:
                        item = step()
                    except StopIteration as end:
                        result = end.value
                        break
                if call.observed:
                    output.append(item)
                try:
                    step = functools.partial(items.send, (yield item))
                except GeneratorExit:
                    with steps.one():
                        items.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the caller, for the agent
                    step = functools.partial(items.throw, error)
        except BaseException:
            call.failed("production_failed")
            raise
        finally:
            steps.end()
        call.returned(output)
        return result

    return agent


def _async_generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    async def agent(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        call = begin(args, kwargs)
        steps = _Steps(call)
        items, output = function(*args, **kwargs), []
        step = functools.partial(anext, items)
        try:
            while True:
                with steps.one():
                    try:
                        item = await step()
                    except StopAsyncIteration:
                        break
                if call is not None and call.observed:
                    output.append(item)
                try:
                    step = functools.partial(items.asend, (yield item))
                except GeneratorExit:
                    with steps.one():
                        await items.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001
                    step = functools.partial(items.athrow, error)
        except BaseException:
            if call is not None:
                call.failed("production_failed")
            raise
        finally:
            steps.end()
        if call is not None:
            call.returned(output)

    return agent


class _Steps:
    """The steps of a generator, in the scope of its call; without a call they run in that of the caller."""

    def __init__(self, call: Call | None) -> None:
        self._call = Scope(call.context(), handle()) if call is not None else None
        self._scope = self._call

    @contextmanager
    def one(self) -> Iterator[None]:
        if self._scope is None:
            yield
            return
        with carried(self._scope):
            yield
            self._scope = handle()  # a mark may begin in one step, and end in another

    def end(self) -> None:
        if self._call is not None:
            self._call.close()
