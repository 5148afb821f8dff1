"""Approval of a write before it runs in production, by a person or a rule."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from slipstream_client.context import Context, Scope, enter
from slipstream_client.side_effects.equality import fingerprint
from slipstream_client.side_effects.sandbox import is_async
from slipstream_client.validation import clean

logger = logging.getLogger("slipstream_client")

TIMEOUT = 300.0
"""Seconds that an answer may take by default: a person who is there has answered by then, and a user waits for it."""

MAX_REASON = 500
"""Characters of a reason, which the model reads."""


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool with side effects that waits for its approval.

    Attributes:
        tool: its name.
        arguments: by parameter, with defaults filled in, without the object of a method: the objects themselves. If
            they are changed before the answer comes, the call is refused.
        task_id, session_id, labels, metadata: of the marks around the call.
    """

    tool: str
    arguments: Mapping[str, Any]
    task_id: str | None
    session_id: str | None
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Refusal:
    """In place of a result: the call was not approved, for this reason; the text may be empty."""

    reason: str


Approve = Callable[[ToolCall], "bool | str | Awaitable[bool | str]"]
"""Returns True to approve; False, or a text that says why, to refuse."""


class Approval:
    """Asks before a tool runs.

    Plain functions are asked in a thread of their own; async ones on the event loop of an async tool, and for a plain
    tool on a loop of that thread. What they ask of a model is not captured.

    Args:
        approve: the function.
        timeout: seconds; without an answer by then the call is refused.
    """

    def __init__(self, approve: Approve, timeout: float) -> None:
        self._approve = approve
        self._timeout = timeout
        self._warned: set[str] = set()

    def refused(self, call: ToolCall) -> Refusal | None:
        """Ask, and wait for the answer; None: it is approved. Raises nothing but what interrupts the wait."""
        if _on_loop():
            self._warn(
                "loop",
                "%s: a plain tool that is called on an event loop's thread blocks the whole loop until its approval "
                "comes, up to %g seconds. Make the tool `async def`",
                call.tool,
                self._timeout,
            )
        before = _digest(call)
        try:
            asking = self._in_thread(call)
        except RuntimeError as error:  # no more threads, or the program ends
            return self._failed(call, error)
        concurrent.futures.wait([asking], self._timeout)
        return self._verdict(call, asking, before)

    async def async_refused(self, call: ToolCall) -> Refusal | None:
        """The asynchronous twin of `refused`; cancelled, it takes an async question back."""
        before = _digest(call)
        try:
            asking: asyncio.Future[Any] = (
                _variables().run(asyncio.ensure_future, _awaited(self._approve(call)))  # type: ignore[arg-type]
                if is_async(self._approve)
                else asyncio.wrap_future(self._in_thread(call))
            )
        except Exception as error:  # noqa: BLE001 - as above; or a function that raises before it returns a coroutine
            return self._failed(call, error)
        asking.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # late ones too: they are known
        try:
            await asyncio.wait({asking}, timeout=self._timeout)
            return self._verdict(call, asking, before)
        finally:
            asking.cancel()

    def _in_thread(self, call: ToolCall) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()
        variables = _variables()

        def body() -> None:
            try:
                outcome: Any = self._approve(call)
                if inspect.isawaitable(outcome):
                    outcome = asyncio.run(_awaited(outcome))
            except BaseException as error:  # noqa: BLE001 - also SystemExit: it is refused, and the program goes on
                answer.set_exception(error)
            else:
                answer.set_result(outcome)

        # it need not end, and the program does not wait for it
        thread = threading.Thread(target=variables.run, args=(body,), name="slipstream-approval", daemon=True)
        contextvars.Context().run(thread.start)
        return answer

    def _verdict(self, call: ToolCall, asking: Future[Any] | asyncio.Future[Any], before: str | None) -> Refusal | None:
        if not asking.done():
            self._warn("timeout", "%s: no approval within %g seconds, so it is refused", call.tool, self._timeout)
            return Refusal("nobody approved it in time")
        if asking.cancelled():
            return self._failed(call, asyncio.CancelledError())
        error = asking.exception()
        if error is not None:
            return self._failed(call, error)
        answer = asking.result()
        if answer is True:
            return None if _digest(call) == before else Refusal("its arguments were changed while it was asked for")
        if isinstance(answer, str):
            return Refusal(clean(answer)[:MAX_REASON])
        if answer is not False:
            self._warn(
                "answer",
                "%s: approve: expected True, False or text, found a %s: refused",
                call.tool,
                type(answer).__name__,
            )
        return Refusal("")

    def _failed(self, call: ToolCall, error: BaseException) -> Refusal:
        self._warn("failed", "%s: approve failed, so it is refused", call.tool, error=error)
        return Refusal("its approval failed")  # the error itself is not for the model

    def _warn(self, kind: str, message: str, *args: object, error: BaseException | None = None) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning(message + " (said once)", *args, exc_info=error)


def _variables() -> contextvars.Context:
    """The caller's context variables, out of its task: a model that is asked is no part of the agent."""
    variables = contextvars.copy_context()
    variables.run(enter, Scope(Context(never=True)))
    return variables


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def _digest(call: ToolCall) -> str | None:
    try:
        return fingerprint(call.arguments)
    except Exception:  # noqa: BLE001 - what cannot be compared
        return None
