"""Marks: this task is worth training on, and this is what is known about it."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, cast

from slipstream_client import outbox, said
from slipstream_client.context import Block, Context, current, enter, entered, leave
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
            task_id=None if task_id is None else said.name("task_id", task_id),
            session_id=None if session_id is None else said.name("session_id", session_id),
            labels=said.labels(labels),
            metadata=said.metadata(metadata),
        )
    )


def mark_answer(*labels: str, msg_id: str | None = None, task_id: str | None = None, **metadata: Any) -> None:
    """Mark a task after its answer was given. Returns at once; does nothing in a replay.

    Args:
        labels, metadata: as of `mark`.
        msg_id: the `id` of a chat completion of the task; this or
        task_id: the task.

    Raises:
        TypeError, ValueError: an argument cannot be used; the message begins with its name.
    """
    if (msg_id is None) == (task_id is None):
        raise ValueError("msg_id, task_id: give exactly one of them")
    body = {"labels": list(said.labels(labels)), "metadata": said.metadata(metadata)}
    if msg_id is not None:
        body["msg_id"] = said.text("msg_id", msg_id, said.MAX_MSG_ID)
    else:
        body["task_id"] = said.name("task_id", task_id)
    if current().replay is None:
        outbox.put(post_mark(body))


@contextmanager
def never() -> Iterator[Context]:
    """A block whose calls the sidecar does not capture, whatever its selection says: for data that must not train.

    Raises:
        RuntimeError: in a replay, whose calls are all trained on. An agent that comes here in production is not run
            again; this is for a replay that takes another way.
    """
    outer = current()
    if outer.replay is not None:
        raise RuntimeError("never: a replay makes no calls that must not be trained on")
    with entered(replace(outer, never=True)) as context:
        yield context


class Mark:
    """What `mark` returns. It may be entered again and again, also by several threads or tasks at a time."""

    def __init__(self, own: Context) -> None:
        self._own = own

    def __enter__(self) -> Context:
        """Returns the context of the block: its `task_id` and all labels and metadata so far."""
        own, outer = self._own, current()
        labels = tuple(dict.fromkeys((*outer.labels, *own.labels)))
        metadata = {**outer.metadata, **own.metadata}
        task_id = own.task_id or outer.task_id
        whole = fits_header(labels) and fits_header(metadata)
        if task_id is None and not whole:
            task_id = uuid.uuid4().hex
        block = Block(self, task_id, outer.block)
        context = replace(
            outer,
            task_id=task_id,
            session_id=own.session_id or outer.session_id,
            labels=labels,
            metadata=metadata,
            block=block,
        )
        if not whole:
            _post(context)
            block.carried = True
        block.token = enter(context)
        return context

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        context = current()
        block = context.block
        if block is None or block.owner is not self or block.token is None:
            return  # a generator that ends in another context than it began in
        leave(block.token)
        block.token = block.outer = None  # what it has planned, a timer that begins anew, would hold all before it
        if not block.carried and context.task_id is not None:
            _post(context)

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


def _post(context: Context) -> None:
    """Post what the calls of a block do not carry. A replay says nothing of production's task."""
    if context.replay is None and not context.never:
        body = {"task_id": context.task_id, "labels": list(context.labels), "metadata": dict(context.metadata)}
        outbox.put(post_mark(body))
