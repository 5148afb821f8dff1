"""What the calls of an agent carry with them: task, session, labels, metadata, or the replay that they are part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from slipstream_client.training.calls import Call


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
        owner: whoever entered it.
        task_id: the task that is marked.
        outer: the mark around it.
        carried: whether a call took it along, so that it need not be posted as well.
        token: leaves it.
    """

    owner: object
    task_id: str | None
    outer: Block | None
    carried: bool = False
    token: Token[Context] | None = None

    def carried_by(self, task_id: str | None) -> None:
        """A call of this task is on its way with the labels of this mark and of those around it."""
        block: Block | None = self
        while block is not None:
            block.carried = block.carried or block.task_id == task_id
            block = block.outer


@dataclass(frozen=True)
class Context:
    """What a call carries.

    Attributes:
        labels: of the marks around the call, each once, outermost first.
        metadata: JSON values by name; what an inner mark says goes before.
        never: the call is not to be captured.
        replay: the run that the call belongs to; then nothing else here is sent.
        block: the innermost mark.
        call: of an agent, which this is a part of and which a TrainingRunner may run again.
    """

    task_id: str | None = None
    session_id: str | None = None
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    never: bool = False
    replay: Replay | None = None
    block: Block | None = field(default=None, compare=False, repr=False)
    call: Call | None = field(default=None, compare=False, repr=False)


NOTHING = Context()
"""The context outside of any mark and replay."""

_current: ContextVar[Context] = ContextVar("slipstream", default=NOTHING)


def current() -> Context:
    """What a call carries that would begin here."""
    return _current.get()


def is_replay() -> bool:
    """Whether this code runs for training, in a replay of an agent, and not for a user."""
    return _current.get().replay is not None


def enter(context: Context) -> Token[Context]:
    """Have calls carry this context, in place of the one around it, until `leave`."""
    if context is not NOTHING:
        from slipstream_client import threads  # which needs this module

        threads.carry_contexts()
    if context.call is not None:
        context.call.saw(context)
    return _current.set(context)


def leave(token: Token[Context]) -> None:
    """Go back to the context before `enter`."""
    # a generator may end in another context than it began in, which is not ours to change
    with suppress(ValueError):
        _current.reset(token)


@contextmanager
def entered(context: Context) -> Iterator[Context]:
    """A block whose calls carry this context, in place of the one around it."""
    token = enter(context)
    try:
        yield context
    finally:
        leave(token)
