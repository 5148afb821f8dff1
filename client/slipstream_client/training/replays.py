"""Tasks run again in the background: each as a group of runs at the sidecar, ended by a reward or an error."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable
from typing import Any

from slipstream_client.config import settings
from slipstream_client.errors import SidecarAway, SidecarRefused
from slipstream_client.service import AsyncService, open_runs, post_commit
from slipstream_client.side_effects.recording import GuardedReplay
from slipstream_client.training.execution import Execution, GivenUp, Loop, Slot
from slipstream_client.training.rewards import RewardFunction
from slipstream_client.training.run_executor import Dropped, RunExecutor
from slipstream_client.training.tally import Tally
from slipstream_client.training.tasks import Limits, Task

COMMIT_TIMEOUT = 60.0
"""Seconds: the Explorer may take its time, and nobody waits for it."""

STARTS = 10.0
"""Seconds in which a thread starts, on a machine under load."""


class Replays:
    """A bounded queue of tasks, and the thread that has them run.

    Its event loop runs nothing of the developer's, so that a run that blocks holds up nobody: plain functions run in
    threads, async ones on a second loop.

    Args:
        agents: the event loop for async agents; None for one in a thread of its own.
    """

    def __init__(
        self,
        limits: Limits,
        reward: RewardFunction | None,
        tally: Tally,
        agents: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._limits = limits
        self._reward = reward
        self._tally = tally
        self._own_loop = Loop()
        self._agents = agents
        self._lock = threading.Lock()
        self._waiting = 0
        self._closing = False
        self._uncommitted = False
        self._runs: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="slipstream-replays", daemon=True
        )
        contextvars.Context().run(self._thread.start)
        if not self._ready.wait(STARTS):
            raise RuntimeError("the runner's thread did not start")

    @property
    def agents_loop(self) -> asyncio.AbstractEventLoop | None:
        return self._agents

    def offer(self, task: Task) -> str | None:
        """Have a task run again. Returns at once: None, or the reason why it is dropped."""
        with self._lock:
            if self._closing:
                return "stopped"
            if self._waiting >= self._limits.queue:
                return "queue_full"
            self._loop.call_soon_threadsafe(self._queue.put_nowait, task)
            self._waiting += 1
            self._tally.add("waiting")
            return None

    def stop(self, timeout: float, within: float | None = None) -> None:
        """Take no more tasks, wait at most so many seconds for those there are, commit, and end.

        Args:
            within: seconds that all of it may take; else the sidecar has its own time to answer behind `timeout`.
        """
        within = 2 * timeout + 4 * settings().timeout if within is None else within
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._loop.call_soon_threadsafe(self._stop.set_result, (timeout, time.monotonic() + within))
        self._thread.join(within)
        self._own_loop.stop()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Task] = asyncio.Queue()
        self._slots = asyncio.Semaphore(self._limits.concurrency)
        self._stop: asyncio.Future[tuple[float, float]] = self._loop.create_future()
        self._given_up: asyncio.Future[None] = self._loop.create_future()
        execution = Execution(lambda: self._agents or self._own_loop.get(), self._given_up)
        async with AsyncService() as self._service:
            self._executor = RunExecutor(self._service, execution, self._reward, self._limits.timeout, self._given_up)
            background = [asyncio.create_task(self._dispatch()), asyncio.create_task(self._commit_in_turn())]
            self._ready.set()
            drained = asyncio.create_task(self._drained())
            timeout, end = await self._stop
            await asyncio.wait({drained}, timeout=timeout)
            for work in (drained, *background):
                work.cancel()
            await asyncio.gather(drained, *background, return_exceptions=True)
            await self._give_up(min(2 * settings().timeout, end - time.monotonic()))
            await self._commit(min(max(timeout, settings().timeout), end - time.monotonic()))

    async def _drained(self) -> None:
        await self._stop
        await self._queue.join()
        while self._runs:
            await asyncio.wait(set(self._runs))

    async def _give_up(self, timeout: float) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
            self._took()
            self._stopped()
        self._given_up.set_result(None)
        if self._runs:
            await asyncio.wait(set(self._runs), timeout=timeout)

    async def _dispatch(self) -> None:
        while True:
            task = await self._queue.get()
            try:
                slot = await self._slot()
            except asyncio.CancelledError:
                self._queue.put_nowait(task)
                raise
            self._took()
            try:
                group = await self._opened(task)
            except asyncio.CancelledError:
                slot.release()
                self._stopped()
                raise
            if not group:
                slot.release()
            for number, replay in enumerate(group):
                run = asyncio.create_task(self._run(task, replay, slot if number == 0 else None))
                self._runs.add(run)
                run.add_done_callback(self._runs.discard)
            self._queue.task_done()

    def _took(self) -> None:
        with self._lock:
            self._waiting -= 1
        self._tally.add("waiting", -1)

    def _stopped(self) -> None:
        self._tally.dropped("stopped", "the runner stopped before its turn")

    async def _slot(self) -> Slot:
        await self._slots.acquire()
        self._tally.add("running")
        return Slot(self._freed)

    def _freed(self) -> None:
        self._tally.add("running", -1)
        self._slots.release()

    async def _opened(self, task: Task) -> list[GuardedReplay]:
        """The task's runs; none where the sidecar does not open them."""
        request = open_runs(
            task.task_id,
            self._limits.repeat_time,
            labels=task.labels,
            metadata=task.metadata,
            session_id=task.session_id,
        )
        try:
            group = await self._service.send(request)
        except SidecarAway as error:
            self._tally.dropped("sidecar_away", "%s", error)
        except SidecarRefused as error:
            self._tally.dropped(error.code or "refused", "%s", error)
        except Exception as error:  # noqa: BLE001 - the next task is served all the same
            self._tally.dropped("internal", "%r", error, error=error)
        else:
            shared: dict[object, Any] = {}
            return [GuardedReplay(run.task_id, run.run_id, task.recording, group=shared) for run in group.runs]
        return []

    async def _run(self, task: Task, replay: GuardedReplay, slot: Slot | None) -> None:
        try:
            slot = slot or await self._unless_given_up(self._slot())
            problem = await self._executor.run(task, replay, slot)
        except GivenUp:
            problem = await self._executor.drop(replay, Dropped("stopped", "the runner stopped"))
        finally:
            if slot is not None:
                slot.release()
        if problem is not None:
            self._tally.failed(problem.reason, "%s", problem, error=problem.__cause__)
        else:
            self._tally.add("finished")
            self._uncommitted = True

    async def _unless_given_up(self, waiting: Awaitable[Slot]) -> Slot:
        future = asyncio.ensure_future(waiting)
        waited: set[asyncio.Future[Any]] = {future, self._given_up}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            raise GivenUp
        return future.result()

    async def _commit_in_turn(self) -> None:
        while True:
            await asyncio.sleep(self._limits.commit_interval)
            await self._commit()

    async def _commit(self, timeout: float = COMMIT_TIMEOUT) -> None:
        """Commit what has been finished since the last time, if there are seconds for it."""
        if not self._uncommitted or timeout <= 0:
            return
        self._uncommitted = False
        try:
            await self._service.send(post_commit(timeout))
        except Exception as error:  # noqa: BLE001 - the sidecar's own timer delivers it too
            self._uncommitted = True
            self._tally.warn("commit", "a commit failed, the next one goes on: %s", error)
        else:
            self._tally.add("commits")
