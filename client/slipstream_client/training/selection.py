"""Selection of an agent's calls that are run again for training: one decision a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from inspect import iscoroutinefunction
from typing import Any, Protocol, cast


@dataclass(frozen=True)
class Candidate:
    """A call of a decorated agent, as a strategy sees it.

    Attributes:
        task_id: of the mark around the call, or one of its own.
        args, kwargs: what the agent was called with: the objects themselves, not to be changed.
        labels, metadata: of the marks around the call; when asked at its end, of those made inside too.
    """

    task_id: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]


class Selection(Protocol):
    """Anything that decides whether a task is run again. It is asked in the caller's thread: it must be quick.

    A strategy with a true attribute `at_end` that said no when the call began is asked once more when it has ended,
    when the marks made inside the call are known too. Inputs must then be copied for every call.
    """

    def select(self, candidate: Candidate, /) -> bool: ...


class SamplingRate:
    """A share of all tasks, chosen by a hash of the task id: the same decision for the same id, wherever it is made.

    Args:
        rate: from 0 (none) to 1 (all).

    Raises:
        ValueError: the rate is no number from 0 to 1.
    """

    def __init__(self, rate: float) -> None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ValueError(f"SamplingRate: rate: expected a number from 0 to 1, found {rate!r}")
        self.rate = rate

    def select(self, candidate: Candidate, /) -> bool:
        name = candidate.task_id.encode("utf-8", "surrogatepass")
        digest = blake2b(name, digest_size=8, key=b"agent-replay").digest()  # independent of the sidecar's own samples
        return (int.from_bytes(digest, "big") >> 11) / 2**53 < self.rate  # 53 bits are what a float holds exactly


class ExplicitMarking:
    """The tasks that were marked, around the call of the agent or inside it.

    What the agent marks while it works counts too, so the inputs of every call are copied.

    Args:
        label: the label that counts; None for any.
        inside: False: only marks around the call count, and only the inputs of marked calls are copied.
    """

    def __init__(self, label: str | None = None, *, inside: bool = True) -> None:
        self.label = label
        self.at_end = inside

    def select(self, candidate: Candidate, /) -> bool:
        return bool(candidate.labels) if self.label is None else self.label in candidate.labels


class _Function:
    def __init__(self, function: Callable[[Candidate], object]) -> None:
        self._function = function

    def select(self, candidate: Candidate, /) -> bool:
        return bool(self._function(candidate))


def as_selection(selection: Selection | Callable[[Candidate], object]) -> Selection:
    """Make a selection of a strategy or a function. Raises TypeError for anything else, and for what is async."""
    decide: Any = getattr(selection, "select", selection)
    if not callable(decide) or isinstance(selection, type):
        raise TypeError(
            f"selection: expected a strategy with select(candidate), or a function, found {type(selection).__name__}"
        )
    if iscoroutinefunction(decide):
        raise TypeError("selection: it decides while the caller waits, so it cannot be async")
    return cast(Selection, selection) if hasattr(selection, "select") else _Function(decide)
