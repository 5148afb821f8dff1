"""The guard of a tool with side effects: what its calls do in production, and in a replay."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from slipstream_client.config import BlockedTools, settings
from slipstream_client.context import Context, Replay, current
from slipstream_client.side_effects.approval import Approval, Refusal, ToolCall
from slipstream_client.side_effects.equality import NotComparable, fingerprint
from slipstream_client.side_effects.keys import Key, first_results
from slipstream_client.side_effects.recording import GuardedReplay, Record, Recording, Unrecorded
from slipstream_client.side_effects.redaction import without_secrets
from slipstream_client.side_effects.refusal import blocked, refusal, refused
from slipstream_client.side_effects.sandbox import Sandbox, is_method

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

NONE: Final = object()  # a fallback may be None


@dataclass(frozen=True)
class Options:
    """See `tool`; `fallback` is `NONE` if there is none."""

    fallback: Any = NONE
    redact: Callable[[Any], Any] | None = None
    blocked: BlockedTools | None = None
    sandbox: Sandbox | None = None
    idempotency_key: Callable[..., str] | None = None
    approval: Approval | None = None


class Guard:
    """Guards one tool.

    Args:
        name: in reports.
    """

    def __init__(self, function: Callable[..., Any], name: str, options: Options) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        self._name = name
        self._identity = f"{function.__module__}.{function.__qualname__} {name}"
        self._options = options
        self._redact = options.redact or without_secrets
        self._warned: set[str] = set()

    def around(self) -> Callable[..., Any]:
        """Return the guarded tool, of a plain function."""
        approval = self._options.approval

        @functools.wraps(self._function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            context = current()
            if context.replay is not None:
                return self._replayed(context, context.replay, args, kwargs)
            text = self._key_text(args, kwargs)
            record = self._begun(context, args, kwargs, text)

            def run() -> Any:
                if approval is not None and (no := approval.refused(self._waiting(context, args, kwargs))) is not None:
                    return no
                result = self._function(*args, **kwargs)
                if self._options.idempotency_key is not None and inspect.isawaitable(result):
                    raise self._not_a_result(result)
                return result

            try:
                key = self._key_in_task(context, text)
                result = run() if key is None else first_results.once(key, run, _happened)
            except BaseException as error:
                _raised(record, error)
                raise
            return self._returned(record, result)

        return guarded

    def around_async(self) -> Callable[..., Any]:
        """Return the guarded tool, of an async function."""
        approval = self._options.approval

        @functools.wraps(self._function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            context = current()
            if context.replay is not None:
                result = self._replayed(context, context.replay, args, kwargs)
                return await result if inspect.isawaitable(result) else result
            text = self._key_text(args, kwargs)
            record = self._begun(context, args, kwargs, text)

            async def run() -> Any:
                if approval is not None:
                    no = await approval.async_refused(self._waiting(context, args, kwargs))
                    if no is not None:
                        return no
                return await self._function(*args, **kwargs)

            try:
                key = self._key_in_task(context, text)
                result = await (run() if key is None else first_results.async_once(key, run, _happened))
            except BaseException as error:
                _raised(record, error)
                raise
            return self._returned(record, result)

        return guarded

    def _replayed(self, context: Context, replay: Replay, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the tool's result in a replay. Whatever goes wrong in here, the tool does not run."""
        if context.ended:  # neither a user nor a run waits for it, unless a worker began in the wrong place
            left_behind = SideEffectBlocked(self._name, _LEFT_BEHIND.format(replay.run_id, replay.task_id))
            logger.error("%s", left_behind)
            raise left_behind
        guarded = replay if isinstance(replay, GuardedReplay) else GuardedReplay(replay.task_id, replay.run_id)
        try:
            result = guarded.recorded(self._key(args, kwargs, self._key_text(args, kwargs)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the tool does not run
            why = str(error) if isinstance(error, (Unrecorded, NotComparable)) else f"{type(error).__name__}: {error}"
        else:
            if isinstance(result, Refusal):
                guarded.report(self._name, "refused")
                return refusal(refused(self._name, result.reason), self._function)
            guarded.report(self._name, "recorded")
            return result
        sandbox, fallback = self._options.sandbox, self._options.fallback
        if sandbox is not None and (guarded is replay or not sandbox.is_per_run):  # another process has not its objects
            guarded.report(self._name, "sandboxed")
            return sandbox.call(guarded.sandboxes, args, kwargs)
        if fallback is NONE:
            guarded.report(self._name, "blocked")
            if (self._options.blocked or settings().blocked_tools) == "raise":
                raise SideEffectBlocked(self._name, why)
            return refusal(blocked(self._name), self._function)
        guarded.report(self._name, "fallback")
        return fallback(*args, **kwargs) if callable(fallback) else deepcopy(fallback)

    def _key_text(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The text of the tool's own key function; None without one. Raises what that raises, and TypeError."""
        make = self._options.idempotency_key
        if make is None:
            return None
        self._signature.bind(*args, **kwargs)  # a wrong call is named as the tool's
        text = make(*args, **kwargs)
        if not isinstance(text, str) or not text:
            raise TypeError(f"idempotency_key of {self._name}: expected text of at least one character, found {text!r}")
        return text

    def _key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], text: str | None) -> str:
        """The key of equal calls, in production and in replays. Raises NotComparable, TypeError."""
        if text is not None:
            return f"{self._identity} key {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
        return f"{self._identity} {fingerprint(self._arguments(args, kwargs))}"

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        if is_method(self._signature):  # a replay has a copy of the agent's objects, or others
            del arguments[next(iter(arguments))]
        return arguments

    def _waiting(self, context: Context, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ToolCall:
        arguments = self._arguments(args, kwargs)
        return ToolCall(self._name, arguments, context.task_id, context.session_id, context.labels, context.metadata)

    def _key_in_task(self, context: Context, text: str | None) -> Key | None:
        if text is None:
            return None
        if context.task_id is None:
            self._warn(
                "is called outside of any task, so its idempotency key does nothing: put a mark around the agent"
            )
            return None
        return self._identity, context.task_id, text

    def _not_a_result(self, awaitable: Any) -> TypeError:
        """The error of a plain tool with a key that returned an awaitable, which is kept from running."""
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        elif isinstance(awaitable, asyncio.Future):
            awaitable.cancel()
        return TypeError(
            f"{self._name}: its function is no `async def` and returns a {type(awaitable).__name__}, so its "
            "idempotency key cannot tell what was done. Put slipstream.tool below the decorator that wraps it"
        )

    def _begun(
        self, context: Context, args: tuple[Any, ...], kwargs: Mapping[str, Any], text: str | None
    ) -> Record | None:
        recording: Recording | None = context.call.recording if context.call is not None else None
        if recording is None:
            return None
        try:
            return recording.begin(self._key(args, kwargs, text))
        except Exception:  # noqa: BLE001 - production goes on
            self._warn("its arguments cannot be compared, so no replay gets its result", with_error=True)
            return None

    def _returned(self, record: Record | None, result: Any) -> Any:
        """Record what a call in production came to; returns what its caller gets."""
        is_refusal = isinstance(result, Refusal)
        if record is not None:
            try:
                record.returned(result, _as_it_is if is_refusal else self._redact)
            except Exception:  # noqa: BLE001 - production goes on
                self._warn("its result cannot be kept, so no replay gets it", with_error=True)
        return refusal(refused(self._name, result.reason), self._function) if is_refusal else result

    def _warn(self, what: str, with_error: bool = False) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s: %s (said once)", self._name, what, exc_info=with_error)


def _happened(result: Any) -> bool:
    """Return whether a call changed something: one that was refused may be asked for again."""
    return not isinstance(result, Refusal)


def _as_it_is(result: Any) -> Any:
    return result


def _raised(record: Record | None, error: BaseException) -> None:
    if record is not None:
        record.raised(error)
