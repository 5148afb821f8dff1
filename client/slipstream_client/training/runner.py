"""TrainingRunner: calls of an agent, run again in the background on the policy model."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import uuid
import weakref
from collections.abc import Callable
from copy import deepcopy
from types import TracebackType
from typing import Any, TypeVar, overload

from slipstream_client.config import configure, settings
from slipstream_client.context import current
from slipstream_client.simulated_user.user import SimulatedUser
from slipstream_client.threads import instrument_threads, uninstrument_threads
from slipstream_client.training.calls import Call, observed
from slipstream_client.training.choosing import Chosen, choose
from slipstream_client.training.conversing import conversing
from slipstream_client.training.replays import Replays
from slipstream_client.training.rewards import RewardCalculator, RewardFunction, as_function
from slipstream_client.training.selection import Candidate, Selection, as_selection
from slipstream_client.training.tally import RunnerStats, Tally
from slipstream_client.training.tasks import Arguments, Inputs, Limits

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("slipstream_client")

AT_EXIT = 5.0
"""Seconds that the end of a program waits for replays, if `stop` was not called."""

_RUNS_AT_EXIT = 0.8
"""The part of these seconds for runs. In the rest, runs that have not ended are given up, and the sidecar commits."""


class TrainingRunner:
    """Runs selected calls of an agent again, on the policy model, while the caller has production's answer.

        runner = TrainingRunner(selection=SamplingRate(0.1), reward=lambda run: score(run.output))
        with runner:
            @runner.agent
            def support_agent(question: str) -> str: ...

    Args:
        selection: a strategy with `select(candidate)`, or a function of a `Candidate`; see `selection`.
        reward: a function of a `RunResult`, or an object with `calculate(run)`, plain or async; returns a finite float,
            a `Reward`, or a float and its breakdown. None leaves it to the sidecar's calculators.
        repeat_time: runs of each selected call; group algorithms compare them, so at least 2 for those.
        concurrency: runs at a time.
        queue: tasks that wait at most; what is selected beyond them is dropped and counted.
        commit_interval: seconds between commits, where runs have ended.
        timeout: seconds that a run may take, and its reward as many.
        url: the sidecar's address, as for `configure`, which it is handed to: one for the whole program.

    Attributes:
        stats: what has happened so far, as a `RunnerStats`.

    Raises:
        TypeError, ValueError: an argument cannot be used; the message begins with its name.
    """

    def __init__(
        self,
        selection: Selection | Callable[[Candidate], object],
        reward: RewardCalculator | RewardFunction | None = None,
        *,
        repeat_time: int = 4,
        concurrency: int = 10,
        queue: int = 1000,
        commit_interval: float = 300,
        timeout: float = 300,
        url: str | None = None,
    ) -> None:
        self._selection = as_selection(selection)
        self._reward = as_function(reward)
        self._limits = Limits(
            repeat_time=_count("repeat_time", repeat_time),
            concurrency=_count("concurrency", concurrency),
            queue=_count("queue", queue),
            commit_interval=_seconds("commit_interval", commit_interval),
            timeout=_seconds("timeout", timeout),
        )
        if url is not None:
            now = settings()
            configure(url, api_key=now.api_key, timeout=now.timeout, blocked_tools=now.blocked_tools)
        self._tally = Tally()
        self._replays: Replays | None = None

    @property
    def stats(self) -> RunnerStats:
        return self._tally.stats()

    def start(self) -> None:
        """From now on calls are selected. Async agents run again on an event loop in a thread of its own: what belongs
        to the loop of production (connection pools, locks) they cannot share. `async with` runs them on its own loop.

        Raises:
            RuntimeError: it is started already.
        """
        if _running_loop() is not None:
            logger.warning("TrainingRunner: in async code use `async with`, so that async agents run on its event loop")
        self._start(None)

    def stop(self, timeout: float = 30.0) -> None:
        """Select no more, wait for the runs there are, then commit. Does nothing where it is not started.

        Args:
            timeout: seconds to wait for runs; those left are dropped.

        Raises:
            RuntimeError: called from the event loop that the runs need; leave the block of `async with` instead.
        """
        self._end(timeout)

    def _end(self, timeout: float, within: float | None = None) -> None:
        """See `Replays.stop`."""
        replays = self._replays
        if replays is None:
            return
        if replays.agents_loop is not None and replays.agents_loop is _running_loop():
            raise RuntimeError(
                "stop() would wait for runs on the event loop that it blocks: leave `async with` instead"
            )
        self._replays = None
        atexit.unregister(self._at_exit)
        try:
            replays.stop(timeout, within)
        finally:
            uninstrument_threads()

    def __enter__(self) -> TrainingRunner:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> TrainingRunner:
        self._start(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    @overload
    def agent(self, function: F, /) -> F: ...

    @overload
    def agent(self, /, *, inputs: Inputs | None = None, user: SimulatedUser | None = None) -> Callable[[F], F]: ...

    def agent(
        self, function: F | None = None, /, *, inputs: Inputs | None = None, user: SimulatedUser | None = None
    ) -> F | Callable[[F], F]:
        """Have the calls of an agent selected: a function, a method or a generator, plain or async.

        Its callers notice nothing. An agent that another decorated one calls belongs to that one's task. Inputs are
        copied (`copy.deepcopy`) before the agent can change them, and once more for each run; a call whose inputs
        cannot be copied is not run again.

        Args:
            inputs: called with the agent's arguments, returns copies of them as `(args, kwargs)`; for agents whose
                inputs cannot be copied as they are, such as a method of an object that holds a client.
            user: plays the user in replays: there the agent answers its further messages too, until the conversation
                ends, and a run's output is the `Conversation`. The agent has a parameter `messages`, a list of messages
                of which the last one is the user's, and returns its text, a message, or those that its turn adds.

        Raises:
            TypeError: it is no function, or one that the simulated user cannot talk to.
        """

        def decorate(function: F) -> F:
            if not callable(function) or isinstance(function, (type, classmethod, staticmethod)):
                raise TypeError(f"agent: expected a function, found {function!r}; it goes below classmethod")
            again = function if user is None else conversing(function, user)

            def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
                return self._begin(again, inputs or _deep_copies, args, kwargs)

            return observed(function, begin)

        return decorate if function is None else decorate(function)

    def _begin(
        self, function: Callable[..., Any], inputs: Inputs, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call | None:
        replays, outer = self._replays, current()
        if replays is None or outer.replay is not None or outer.call is not None:
            return None
        task_id = outer.task_id or uuid.uuid4().hex
        chosen: Chosen | None = None
        self._tally.add("calls")
        if not outer.never:
            try:
                candidate = Candidate(task_id, args, kwargs, outer.labels, outer.metadata)
                chosen = choose(self._selection, candidate, function, inputs, replays, self._tally)
            except Exception as error:  # noqa: BLE001 - the user's call goes on
                self._tally.dropped("selection_raised", "%r", error, error=error)
        return Call(outer, task_id, chosen)

    def _start(self, agents: asyncio.AbstractEventLoop | None) -> None:
        if self._replays is not None:
            raise RuntimeError("the runner is started already")
        settings()  # an address that is none is an error here, and not in the log
        self._replays = Replays(self._limits, self._reward, self._tally, agents)
        instrument_threads()
        _started.add(self)
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        self._end(_RUNS_AT_EXIT * AT_EXIT, AT_EXIT)

    def _forked(self) -> None:
        """In a child of the process: the threads stayed with the parent."""
        if self._replays is not None:
            self._replays = None
            self._tally.forked()
            uninstrument_threads()


_started: weakref.WeakSet[TrainingRunner] = weakref.WeakSet()


def _in_child() -> None:
    for runner in _started:
        runner._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _deep_copies(*args: Any, **kwargs: Any) -> Arguments:
    copies: Arguments = deepcopy((args, kwargs))
    return copies


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: expected a whole number of at least 1, found {value!r}")
    return value


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"{name}: expected seconds above 0, found {value!r}")
    return float(value)
