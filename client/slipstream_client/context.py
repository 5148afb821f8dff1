"""The context that the calls of an agent carry: task, session, labels, metadata, or the replay that they are part of.

A block (a mark, `never()`, a replay, an observed call) is a `Scope`, and the ContextVar holds a handle to it. Copies of
the ContextVar (asyncio tasks, timers, `copy_context()`, threads, pools' jobs) hold the same handle, so that the end of
the block ends it everywhere at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote


class RunningCall(Protocol):
    """A call of an agent while it runs, as much as its context knows of it: `training.calls.Call`.

    Attributes:
        recording: of the results of guarded tools (`side_effects.recording.Recording`), or None.
    """

    @property
    def recording(self) -> Any: ...

    def saw(self, context: Context) -> None:
        """A context was entered inside the call."""


@dataclass(frozen=True)
class Replay:
    """One run of a task by the policy model.

    Attributes:
        path: where the run's calls go at the sidecar, in place of `/v1`.
    """

    task_id: str
    run_id: int

    @property
    def path(self) -> str:
        return f"/runs/{quote(self.task_id, safe='')}/{self.run_id}/v1"


@dataclass(eq=False)
class Block:
    """A mark that is entered.

    Attributes:
        task_id: the task that is marked.
        outer: the mark around it.
        carried: a call took the mark along, so that it need not be posted as well.
    """

    task_id: str | None
    outer: Block | None
    carried: bool = False

    def carried_by(self, task_id: str | None) -> None:
        """A call of this task is on its way with the labels of this mark and of those around it."""
        block: Block | None = self
        while block is not None:
            block.carried = block.carried or block.task_id == task_id
            block = block.outer


@dataclass(frozen=True)
class Context:
    """The context of a call.

    Attributes:
        labels: of the marks around the call, each once, outermost first.
        metadata: JSON values by name; what an inner mark says goes before.
        never: the call is not to be captured.
        replay: the run that the call belongs to; then nothing else here is sent.
        ended: the run has ended; this code is left of it, and acts neither for a user nor for training.
        block: the innermost mark.
        call: of an agent, which this is a part of and which a TrainingRunner may run again.
    """

    task_id: str | None = None
    session_id: str | None = None
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    never: bool = False
    replay: Replay | None = None
    ended: bool = False
    block: Block | None = field(default=None, compare=False, repr=False)
    call: RunningCall | None = field(default=None, compare=False, repr=False)

    def within(self, outer: Context) -> Context:
        """Both contexts joined: labels and metadata add up, else this one goes before."""
        if outer is NOTHING:
            return self
        return Context(
            task_id=self.task_id or outer.task_id,
            session_id=self.session_id or outer.session_id,
            labels=tuple(dict.fromkeys((*outer.labels, *self.labels))),
            metadata={**outer.metadata, **self.metadata},
            never=self.never or outer.never,
            replay=self.replay or outer.replay,
            ended=self.ended or outer.ended,
            block=self.block or outer.block,
            call=self.call or outer.call,
        )


NOTHING = Context()
"""The context outside of any block."""


class Scope:
    """A block of code that its calls carry something of, until it ends.

    Args:
        own: what the block adds.
        outer: the scope around it; None for a block that takes the place of whatever is around it.
    """

    def __init__(self, own: Context, outer: Scope | None = None) -> None:
        self._own = own
        self._outer = _open(outer)
        self._joined: tuple[object, Context] | None = None

    @property
    def holds(self) -> bool:
        """False once the block has ended. A replay's never ends for what it has left behind; see `close`."""
        return self._own is not NOTHING

    @property
    def left_over(self) -> bool:
        """True of a replay that has ended."""
        return self._own.ended

    def close(self) -> None:
        """End the block, and with it what it says of calls, wherever its handle was copied to.

        What was started in a replay and outlives it stays a part of it: as production's it would repeat the writes of
        the replay. It keeps the name of the run, marked as ended, and nothing else.
        """
        global _epoch
        replay = self._own.replay
        self._own = NOTHING if replay is None else Context(replay=Replay(replay.task_id, replay.run_id), ended=True)
        self._joined = None
        _epoch = object()

    def context(self) -> Context:
        """The context that calls carry here: this block's, and that of each enclosing block that has not ended."""
        joined, epoch = self._joined, _epoch
        if joined is not None and joined[0] is epoch:
            return joined[1]
        outer = _open(self._outer)
        context = self._own.within(outer.context() if outer is not None else NOTHING)
        self._joined = epoch, context
        return context


_epoch = object()
"""Another one each time that a block ends: until then, contexts that were joined stay as they are."""

_current: ContextVar[Scope | None] = ContextVar("slipstream", default=None)


def current() -> Context:
    """Return the context that a call carries if it begins here."""
    scope = handle()
    return scope.context() if scope is not None else NOTHING


def is_replay() -> bool:
    """Return True in a replay of an agent and in code that one left behind: it runs for training, not for a user."""
    return current().replay is not None


def handle() -> Scope | None:
    """The innermost scope that holds here, for code that runs elsewhere on behalf of this one; see `carried`."""
    return _open(_current.get())


def around() -> Iterator[Scope]:
    """The scopes around this code, the innermost first, also those that have ended."""
    scope = _current.get()
    while scope is not None:
        yield scope
        scope = scope._outer


def enter(scope: Scope) -> Token[Scope | None]:
    """Have calls carry a scope, until `leave`."""
    context = scope.context()
    if context.call is not None:
        context.call.saw(context)
    return _current.set(scope)


def leave(token: Token[Scope | None]) -> None:
    """Go back to the scope before `enter`."""
    # a generator may end in another context than it began in, which is not ours to change
    with suppress(ValueError):
        _current.reset(token)


def let_go() -> None:
    """Take this thread, or asyncio task, out of the replay that has started it and has ended."""
    scope = handle()
    if scope is not None and scope.left_over:
        _current.set(None)


@contextmanager
def carried(scope: Scope | None) -> Iterator[None]:
    """A block that runs on behalf of the code which took this handle; None for code that belongs to no block."""
    token = _current.set(scope)
    try:
        yield
    finally:
        leave(token)


@contextmanager
def entered(context: Context) -> Iterator[Context]:
    """A block whose calls carry this context, in place of the one around it."""
    with _opened(Scope(context)):
        yield context


@contextmanager
def inside(own: Context) -> Iterator[Context]:
    """A block whose calls carry this context and those around it."""
    scope = Scope(own, handle())
    with _opened(scope):
        yield scope.context()


@contextmanager
def _opened(scope: Scope) -> Iterator[None]:
    token = enter(scope)
    try:
        yield
    finally:
        leave(token)
        scope.close()


def _open(scope: Scope | None) -> Scope | None:
    """The scope, or the nearest one around it that has not ended."""
    while scope is not None and not scope.holds:
        scope = scope._outer
    return scope
