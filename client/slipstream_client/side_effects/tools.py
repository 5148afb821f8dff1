"""Tools that change the world run once, for the user, and never again in a replay."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, TypeVar, cast, overload

from slipstream_client.config import BlockedTools, blocked_tools, settings
from slipstream_client.context import Context, Replay, current
from slipstream_client.side_effects.equality import NotComparable, fingerprint
from slipstream_client.side_effects.recording import GuardedReplay, Record, Recording, Unrecorded
from slipstream_client.side_effects.redaction import without_secrets
from slipstream_client.side_effects.refusal import refusal

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("slipstream_client")


class SideEffectBlocked(Exception):
    """A tool with side effects was called in a replay, and production has no result for this call.

    Raised where blocked tools are to raise (`configure`, `tool`), and in what a replay has left behind.
    """

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(f"{tool} has side effects and does not run in a replay: {why}")
        self.tool = tool


_LEFT_BEHIND = (
    "it was called by what run {} of task {} left behind, and that replay has ended. Start workers that serve several "
    "calls outside of replays: 'Threads and tasks' in docs/client.md"
)

_NONE: Final = object()  # a fallback may be None


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    side_effects: bool = False,
    fallback: Any = ...,
    name: str | None = None,
    redact: Callable[[Any], Any] | None = None,
    blocked: BlockedTools | None = None,
) -> Callable[[F], F]: ...


def tool(
    function: F | None = None,
    /,
    *,
    side_effects: bool = False,
    fallback: Any = _NONE,
    name: str | None = None,
    redact: Callable[[Any], Any] | None = None,
    blocked: BlockedTools | None = None,
) -> F | Callable[[F], F]:
    """Say of a tool, plain or async, a function or a method, whether it changes the world.

    One without side effects runs as it is, always. One with side effects runs in production, and its result is
    recorded for the replays of the task. In a replay it never runs: the recorded result of the same call is returned
    (the nth equal call gets the nth result, or else the last). Any other call is blocked: it returns a result that says
    so, of the shape of the tool's return annotation, for the model to see. The run goes on, with the tool in `blocked`.

    Two calls are the same when their arguments are equal; the object that a method belongs to is not compared.

    Args:
        fallback: returned by a blocked call in place of that result; a function is called with the tool's arguments.
        name: in reports, and what tells two tools apart that one function makes; the function's name if left out.
        redact: makes what is kept of a copy of the result, instead of replacing what goes by a secret's name.
        blocked: `"result"`, or `"raise"` for a `SideEffectBlocked` in place of the result; else as `configure` says.

    Raises:
        ValueError: `blocked` is something else.
        TypeError: it is no function, or a generator with side effects, whose result cannot be recorded.
    """
    if function is not None:
        return function  # @tool without more: it has no side effects

    if blocked is not None:
        blocked_tools("blocked", blocked)

    def decorate(function: F) -> F:
        if not inspect.isroutine(function) or isinstance(function, (classmethod, staticmethod)):
            raise TypeError(
                f"tool: expected a function, found {function!r}; it goes below classmethod and staticmethod"
            )
        if not side_effects:
            return function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"tool: {function.__qualname__} is a generator, whose result cannot be recorded")
        guard = _Guard(function, name or function.__name__, fallback, redact, blocked)
        return cast(F, guard.around_async() if inspect.iscoroutinefunction(function) else guard.around())

    return decorate


class _Guard:
    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        fallback: Any,
        redact: Callable[[Any], Any] | None,
        blocked: BlockedTools | None,
    ) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        self._name = name
        self._identity = f"{function.__module__}.{function.__qualname__} {name}"
        self._fallback = fallback
        self._blocked = blocked
        self._redact = redact or without_secrets
        self._warned = False

    def around(self) -> Callable[..., Any]:
        @functools.wraps(self._function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            context = current()
            if context.replay is not None:
                return self._replayed(context, context.replay, args, kwargs)
            record = self._begun(context, args, kwargs)
            try:
                result = self._function(*args, **kwargs)
            except BaseException as error:
                _raised(record, error)
                raise
            self._returned(record, result)
            return result

        return guarded

    def around_async(self) -> Callable[..., Any]:
        @functools.wraps(self._function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            context = current()
            if context.replay is not None:
                result = self._replayed(context, context.replay, args, kwargs)
                return await result if inspect.isawaitable(result) else result
            record = self._begun(context, args, kwargs)
            try:
                result = await self._function(*args, **kwargs)
            except BaseException as error:
                _raised(record, error)
                raise
            self._returned(record, result)
            return result

        return guarded

    def _replayed(self, context: Context, replay: Replay, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the tool's result in a replay. Whatever goes wrong in here, the tool does not run."""
        if context.ended:  # neither a user nor a run waits for it, unless a worker began in the wrong place
            blocked = SideEffectBlocked(self._name, _LEFT_BEHIND.format(replay.run_id, replay.task_id))
            logger.error("%s", blocked)
            raise blocked
        guarded = replay if isinstance(replay, GuardedReplay) else GuardedReplay(replay.task_id, replay.run_id)
        try:
            result = guarded.recorded(self._key(args, kwargs))
        except Exception as error:  # noqa: BLE001 - whatever it is, the tool does not run
            why = str(error) if isinstance(error, (Unrecorded, NotComparable)) else f"{type(error).__name__}: {error}"
        else:
            guarded.report(self._name, "recorded")
            return result
        if self._fallback is _NONE:
            guarded.report(self._name, "blocked")
            if (self._blocked or settings().blocked_tools) == "raise":
                raise SideEffectBlocked(self._name, why)
            return refusal(self._name, self._function)
        guarded.report(self._name, "fallback")
        return self._fallback(*args, **kwargs) if callable(self._fallback) else deepcopy(self._fallback)

    def _key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        if next(iter(arguments), None) in ("self", "cls"):  # a replay has a copy of the agent's objects, or others
            del arguments[next(iter(arguments))]
        return f"{self._identity} {fingerprint(arguments)}"

    def _begun(self, context: Context, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Record | None:
        recording: Recording | None = context.call.recording if context.call is not None else None
        if recording is None:
            return None
        try:
            return recording.begin(self._key(args, kwargs))
        except Exception:  # noqa: BLE001 - production goes on
            self._warn("its arguments cannot be compared")
            return None

    def _returned(self, record: Record | None, result: Any) -> None:
        if record is None:
            return
        try:
            record.returned(result, self._redact)
        except Exception:  # noqa: BLE001 - production goes on
            self._warn("its result cannot be kept")

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s: %s, so replays block it (said once)", self._name, why, exc_info=True)


def _raised(record: Record | None, error: BaseException) -> None:
    if record is not None:
        record.raised(error)
