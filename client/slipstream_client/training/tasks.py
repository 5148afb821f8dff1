"""Tasks that a TrainingRunner runs again, and their limits."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream_client.side_effects.recording import Recording

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]

Inputs = Callable[..., tuple[Sequence[Any], Mapping[str, Any]]]
"""Called with an agent's arguments, returns copies of them."""


@dataclass(frozen=True)
class Task:
    """A call of an agent that is to run again.

    Attributes:
        agent: the function without its decoration.
        inputs: makes the inputs of one run; they are copied anew each time.
        snapshot: the inputs when the call began.
        variables: the context variables of the caller, when the call began.
        output: what production returned.
    """

    agent: Callable[..., Any]
    inputs: Callable[[], tuple[Sequence[Any], Mapping[str, Any]]]
    snapshot: Arguments
    variables: contextvars.Context
    task_id: str
    session_id: str | None
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]
    output: Any
    recording: Recording | None


@dataclass(frozen=True)
class Limits:
    """See `TrainingRunner`."""

    repeat_time: int
    concurrency: int
    queue: int
    commit_interval: float
    timeout: float
