"""Marks: this task is worth training on, and this is what is known about it."""

from __future__ import annotations

import functools
import inspect
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, cast

from slipstream_client import outbox, validation
from slipstream_client.context import Block, Context, Scope, around, current, enter, handle, inside, leave
from slipstream_client.http import fits_header
from slipstream_client.service import post_mark

F = TypeVar("F", bound=Callable[..., Any])


def mark(*labels: str, task_id: str | None = None, session_id: str | None = None, **metadata: Any) -> Mark:
    """Mark the calls of a block, or of a function: `with mark(...)`, `async with mark(...)` or `@mark(...)`.

    Calls through our HTTP clients carry the mark. Where none is made inside and the task id is known, the mark is
    posted at the end, for an agent that only has a `base_url`. Marks inside each other add up: labels are joined, and
    the inner metadata, task id and session id go before.

    Args:
        labels: 1 to 64 printable characters each, without commas.
        task_id: the task that the calls belong to; 1 to 64 characters. Else that of a mark around this one, else the
            sidecar tells tasks apart by the conversation.
        session_id: the conversation, likewise.
        metadata: what reward calculators may use, such as `reference`, the right answer; JSON values. What is too
            long for a header is posted at the beginning of the block, whose calls are then one task.

    Raises:
        TypeError, ValueError: an argument cannot be used; the message begins with its name.
    """
    return Mark(
        Context(
            task_id=None if task_id is None else validation.name("task_id", task_id),
            session_id=None if session_id is None else validation.name("session_id", session_id),
            labels=validation.labels(labels),
            metadata=validation.metadata(metadata),
        )
    )


def mark_answer(*labels: str, msg_id: str | None = None, task_id: str | None = None, **metadata: Any) -> None:
    """Mark a task after its answer was given. Returns at once; does nothing in a replay.

    Args:
        labels, metadata: as of `mark`.
        msg_id: the `id` of an answer of the task; this or
        task_id: the task.

    Raises:
        TypeError, ValueError: an argument cannot be used; the message begins with its name.
    """
    if (msg_id is None) == (task_id is None):
        raise ValueError("msg_id, task_id: give exactly one of them")
    body = {"labels": list(validation.labels(labels)), "metadata": validation.metadata(metadata)}
    if msg_id is not None:
        body["msg_id"] = validation.text("msg_id", msg_id, validation.MAX_MSG_ID)
    else:
        body["task_id"] = validation.name("task_id", task_id)
    if current().replay is None:
        outbox.put(post_mark(body))


@contextmanager
def never() -> Iterator[Context]:
    """A block whose calls the sidecar does not capture, whatever its selection says: for data that must not train.

    Raises:
        RuntimeError: in a replay, whose calls are all trained on. An agent that comes here in production is not run
            again; this is for a replay that takes another way.
    """
    if current().replay is not None:
        raise RuntimeError("never: a replay makes no calls that must not be trained on")
    with inside(Context(never=True)) as context:
        yield context


class Mark:
    """Result of `mark`. It may be entered again and again, also by several threads or tasks at a time."""

    def __init__(self, own: Context) -> None:
        self._own = own
        self._entered: weakref.WeakSet[_Marked] = weakref.WeakSet()
        self._lock = threading.Lock()

    def __enter__(self) -> Context:
        """Returns the context of the block: its `task_id` and all labels and metadata so far."""
        own, outer = self._own, current()
        joined = own.within(outer)
        whole = fits_header(joined.labels) and fits_header(joined.metadata)
        if joined.task_id is None and not whole:
            own = replace(own, task_id=uuid.uuid4().hex)
        scope = _Marked(self, own, Block(own.task_id or outer.task_id, outer.block))
        context = scope.context()
        if not whole:
            _post(context)
            scope.block.carried = True
        scope.token = enter(scope)
        with self._lock:
            self._entered.add(scope)
        return context

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        scope = self._entered_here()
        if scope is None:
            return
        context = scope.context()
        if scope.token is not None:
            leave(scope.token)
        scope.close()
        if not scope.block.carried and context.task_id is not None:
            _post(context)

    def _entered_here(self) -> _Marked | None:
        """The block that ends: the innermost of this mark. A generator may end in another context than it began in."""
        found = next((scope for scope in around() if isinstance(scope, _Marked) and scope.mark is self), None)
        with self._lock:
            if found is None and len(self._entered) == 1:
                (found,) = self._entered
            if found is not None:
                self._entered.discard(found)
        return found

    async def __aenter__(self) -> Context:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, at)

    def __call__(self, function: F) -> F:
        """Mark every call of a plain or an async function.

        Raises:
            TypeError: a generator function, whose body runs when it is asked for items: mark the loop instead.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"mark: {function.__qualname__} is a generator: use `with mark(...)` around its loop")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def marked_async(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast(F, marked_async)

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, marked)


class _Marked(Scope):
    """One block of a mark."""

    def __init__(self, mark: Mark, own: Context, block: Block) -> None:
        super().__init__(replace(own, block=block), handle())
        self.mark: Mark | None = mark
        self.block = block
        self.token: Token[Scope | None] | None = None

    def close(self) -> None:
        super().close()
        self.mark = self.token = self.block.outer = None  # a timer that begins its block anew would hold all before it


def _post(context: Context) -> None:
    """Post what the calls of a block do not carry. A replay says nothing of production's task."""
    if context.replay is None and not context.never:
        body = {"task_id": context.task_id, "labels": list(context.labels), "metadata": dict(context.metadata)}
        outbox.put(post_mark(body))
