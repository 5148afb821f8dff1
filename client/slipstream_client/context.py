"""What the calls of an agent carry with them: task, session, labels, metadata, or the replay that they are part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote


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


@dataclass
class Carried:
    """Whether a call took a mark with it, so that the mark need not be posted as well.

    Attributes:
        task_id: the task that was marked.
        outer: that of the mark around it.
    """

    task_id: str | None
    outer: Carried | None = None
    done: bool = False

    def by(self, task_id: str | None) -> None:
        """A call of this task is on its way with the labels of this mark and of those around it."""
        mark: Carried | None = self
        while mark is not None:
            mark.done = mark.done or mark.task_id == task_id
            mark = mark.outer


@dataclass(frozen=True)
class Context:
    """What a call carries.

    Attributes:
        labels: of the marks around the call, each once, outermost first.
        metadata: JSON values by name; what an inner mark says goes before.
        never: the call is not to be captured.
        replay: the run that the call belongs to; then nothing else here is sent.
        carried: of the innermost mark.
    """

    task_id: str | None = None
    session_id: str | None = None
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    never: bool = False
    replay: Replay | None = None
    carried: Carried | None = field(default=None, compare=False, repr=False)


NOTHING = Context()
"""The context outside of any mark and replay."""

_current: ContextVar[Context] = ContextVar("slipstream", default=NOTHING)


def current() -> Context:
    """What a call carries that would begin here."""
    return _current.get()


def is_replay() -> bool:
    """Whether this code runs for training, in a replay of an agent, and not for a user."""
    return _current.get().replay is not None


@contextmanager
def entered(context: Context) -> Iterator[Context]:
    """Have calls carry this context, in place of the one around it."""
    token = _current.set(context)
    try:
        yield context
    finally:
        # a generator may end in another context than it began in, which is not ours to change
        with suppress(ValueError):
            _current.reset(token)
