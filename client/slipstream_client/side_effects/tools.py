"""Tools that change the world run once, for the user, and never again in a replay."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from slipstream_client.config import BlockedTools, blocked_tools
from slipstream_client.side_effects.approval import TIMEOUT, Approval, Approve
from slipstream_client.side_effects.guard import NONE, Guard, Options
from slipstream_client.side_effects.sandbox import Sandbox, expect_arguments, is_async

F = TypeVar("F", bound=Callable[..., Any])


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    side_effects: bool = False,
    fallback: Any = ...,
    sandbox: Callable[..., Any] | type | None = None,
    idempotency_key: Callable[..., str] | None = None,
    approve: Approve | None = None,
    approve_timeout: float | None = None,
    name: str | None = None,
    redact: Callable[[Any], Any] | None = None,
    blocked: BlockedTools | None = None,
) -> Callable[[F], F]: ...


def tool(
    function: F | None = None,
    /,
    *,
    side_effects: bool = False,
    fallback: Any = NONE,
    sandbox: Callable[..., Any] | type | None = None,
    idempotency_key: Callable[..., str] | None = None,
    approve: Approve | None = None,
    approve_timeout: float | None = None,
    name: str | None = None,
    redact: Callable[[Any], Any] | None = None,
    blocked: BlockedTools | None = None,
) -> F | Callable[[F], F]:
    """Say of a tool, plain or async, a function or a method, whether it changes the world.

    One without side effects runs as it is, always. One with side effects runs in production, and its result is
    recorded for the replays of the task. In a replay it never runs: the recorded result of the same call is returned
    (the nth equal call gets the nth result, or else the last). Any other call goes to the tool's sandbox, or else it is
    blocked: it returns a result that says so, of the shape of the tool's return annotation, for the model to see. The
    run goes on, with the tool in `blocked`.

    Two calls are the same when their arguments are equal, or their idempotency keys; the object that a method belongs
    to is not compared.

    Args:
        fallback: returned by a blocked call in place of that result; a function is called with the tool's arguments.
        sandbox: runs in a replay in place of the tool. A function gets the tool's arguments. Of a class, each run has
            one object, made without arguments when it is first needed and, if it is a context manager, left when the
            run ends; its method of the tool's function name is called. It never runs in production.
        idempotency_key: gets the tool's arguments and returns text. In production, a second call of the same text in
            the same task and process returns the first one's result, and does not run.
        approve: asked in production before the tool runs, with a `ToolCall`; plain or async. True approves. False or a
            text that says why refuses, and so does anything else, an error, or no answer in time: the call then returns
            a result that says so, and so do the same calls of replays, in which it is not called.
        approve_timeout: seconds that an answer may take; 300 if left out.
        name: in reports, and what tells two tools apart that one function makes; the function's name if left out.
        redact: makes what is kept of a copy of the result, instead of replacing what goes by a secret's name.
        blocked: `"result"`, or `"raise"` for a `SideEffectBlocked` in place of the result; else as `configure` says.

    Raises:
        ValueError: an argument cannot be used, or not with another one; the message begins with its name.
        TypeError: it is no function, a generator with side effects, whose result cannot be recorded, or an argument is
            no function that fits the tool.
    """
    if function is not None:
        return function  # @tool without more: it has no side effects

    if blocked is not None:
        blocked_tools("blocked", blocked)
    given = {"sandbox": sandbox, "idempotency_key": idempotency_key, "approve": approve}
    for argument, value in given.items():
        if value is not None and not side_effects:
            raise ValueError(f"{argument}: a tool without side effects runs as it is, always: set side_effects=True")
    if sandbox is not None and fallback is not NONE:
        raise ValueError("fallback: a tool with a sandbox is never blocked: give one of fallback and sandbox")
    if sandbox is not None and blocked is not None:
        raise ValueError("blocked: a tool with a sandbox is never blocked: give one of blocked and sandbox")
    approval = _approval(approve, approve_timeout)

    def decorate(function: F) -> F:
        if not inspect.isroutine(function) or isinstance(function, (classmethod, staticmethod)):
            raise TypeError(
                f"tool: expected a function, found {function!r}; it goes below classmethod and staticmethod"
            )
        if not side_effects:
            return function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"tool: {function.__qualname__} is a generator, whose result cannot be recorded")
        if idempotency_key is not None:
            _expect_key_function(idempotency_key, function)
        stand_in = Sandbox(sandbox, function) if sandbox is not None else None
        options = Options(fallback, redact, blocked, stand_in, idempotency_key, approval)
        guard = Guard(function, name or function.__name__, options)
        return cast(F, guard.around_async() if inspect.iscoroutinefunction(function) else guard.around())

    return decorate


def _approval(approve: Approve | None, timeout: float | None) -> Approval | None:
    if approve is None:
        if timeout is not None:
            raise ValueError("approve_timeout: nobody is asked: give approve too")
        return None
    if not callable(approve) or isinstance(approve, type):
        raise TypeError(f"approve: expected a function of a ToolCall, found {approve!r}")
    if timeout is None:
        return Approval(approve, TIMEOUT)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
        raise ValueError(f"approve_timeout: expected seconds above 0, found {timeout!r}")
    return Approval(approve, float(timeout))


def _expect_key_function(make: Callable[..., str], tool: Callable[..., Any]) -> None:
    if not callable(make) or isinstance(make, type) or is_async(make):
        raise TypeError(f"idempotency_key: expected a plain function of the tool's arguments, found {make!r}")
    expect_arguments("idempotency_key", make, inspect.signature(tool))
