"""Record of the results of one call's guarded tools, for its replays."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from slipstream_client.context import Replay
from slipstream_client.side_effects.sandbox import Sandboxes

MAX_RESULTS = 100
"""A task has rarely more than a dozen writes; an agent in a loop must not fill the memory."""

MAX_BYTES = 256 * 1024
"""Limit of all results of a task together. With the default queue of 1,000 tasks: 256 MiB if each fills its share."""

MAX_REPORTED = 1000
"""Side effects that one run tells of."""


class Unrecorded(Exception):
    """There is no result for a call; the message says why."""


class Recording:
    """The results of one production call's guarded tools, in the order in which their calls began."""

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._room = MAX_BYTES

    def begin(self, key: str) -> Record | None:
        """A place for the result of a call that begins now; None where there is no room for more.

        Args:
            key: of the tool and its arguments.
        """
        with self._lock:
            if self._count == MAX_RESULTS:
                return None
            self._count += 1
            record = Record(self)
            self._records.setdefault(key, []).append(record)
            return record

    def packed(self, value: Any) -> bytes:
        """A copy of a value, which takes its room. Raises Unrecorded, or what pickle raises."""
        with self._lock:
            room = self._room
        packed = _pickled(value, room)
        with self._lock:
            if len(packed) > self._room:
                raise Unrecorded("production's results were too large to be kept")
            self._room -= len(packed)
        return packed

    def nth(self, key: str, number: int) -> Record:
        """Return the result of the call with this key that began as the nth one (from 0), or else the last. Raises
        Unrecorded.

        A call with which the records were full is missing, so the one before it answers in its place.
        """
        records = self._records.get(key)
        if not records:
            raise Unrecorded("production did not call it with these arguments")
        return records[min(number, len(records) - 1)]


class Record:
    """The result of one call, or why there is none."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._packed: bytes | None = None
        self._why = "production's call had not ended"

    def returned(self, value: Any, redact: Callable[[Any], Any]) -> None:
        """Keep a copy of the result as `redact` leaves it. Raises what cannot be copied raises; then there is none."""
        self._why = "production's result could not be copied"
        mine = pickle.loads(_pickled(value, MAX_BYTES))  # noqa: S301 - our own bytes, of a moment ago
        self._packed = self._recording.packed(redact(mine))

    def raised(self, error: BaseException) -> None:
        self._why = f"production's call raised {type(error).__name__}"

    def result(self) -> Any:
        """A copy of the result. Raises Unrecorded."""
        if self._packed is None:
            raise Unrecorded(self._why)
        return pickle.loads(self._packed)  # noqa: S301 - never left this process


Outcome = Literal["recorded", "blocked", "fallback", "sandboxed", "refused"]
"""Outcomes of a guarded tool's call in a replay: production's result, a result that says that it was not carried out,
the tool's fallback, its sandbox's result, or the refusal that production's call got."""


@dataclass(frozen=True)
class SideEffect:
    """Outcome of a guarded tool's call in a replay."""

    tool: str
    outcome: Outcome


def blocked_tools(side_effects: Iterable[SideEffect]) -> tuple[str, ...]:
    """The tools whose calls were blocked, in the order of the calls."""
    return tuple(effect.tool for effect in side_effects if effect.outcome == "blocked")


@dataclass(frozen=True)
class RunProblem:
    """Reason to drop a run although its agent returns, and its explanation for people."""

    reason: str
    why: str


@dataclass(frozen=True)
class GuardedReplay(Replay):
    """A replay with what its guarded tools and its simulated user need.

    Attributes:
        recording: of the production call; None where nothing is recorded, and each guarded tool blocks.
        side_effects: grows while the replay runs.
        sandboxes: the objects that tools run on in this replay.
        kept: what belongs to this replay, by whom it is kept for.
        group: what belongs to its group, likewise: one object for all runs of the group in this process.
    """

    recording: Recording | None = field(default=None, compare=False, repr=False)
    side_effects: list[SideEffect] = field(default_factory=list, compare=False)
    kept: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    group: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    sandboxes: Sandboxes = field(default_factory=Sandboxes, compare=False, repr=False)
    _problems: list[RunProblem] = field(default_factory=list, compare=False, repr=False)
    _asked: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    @property
    def blocked(self) -> tuple[str, ...]:
        """The tools that did not run and had no result, by name, once a call."""
        return blocked_tools(self.side_effects)

    def recorded(self, key: str) -> Any:
        """The result that production's call with this key had: the nth for the nth call. Raises Unrecorded."""
        if self.recording is None:
            raise Unrecorded("nothing is recorded for this replay")
        with self._lock:
            number = self._asked.get(key, 0)
            self._asked[key] = number + 1
        return self.recording.nth(key, number).result()

    @property
    def problem(self) -> RunProblem | None:
        """The first reason to drop the run, whatever its agent makes of it; None if there is none."""
        return self._problems[0] if self._problems else None

    def fail(self, problem: RunProblem) -> None:
        """Have the run dropped at its end."""
        self._problems.append(problem)

    def report(self, tool: str, outcome: Outcome) -> None:
        if len(self.side_effects) < MAX_REPORTED:
            self.side_effects.append(SideEffect(tool, outcome))


class _Bounded(io.RawIOBase):
    """Takes what is written until it is too much, so that a huge result costs production no copy of it all."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        if len(self.taken) + size > self._room:
            raise Unrecorded("production's results were too large to be kept")
        self.taken += data
        return size


def _pickled(value: Any, room: int) -> bytes:
    file = _Bounded(room)
    pickle.Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return bytes(file.taken)
