"""Shadow calls: each planned run is one chat completion of the policy model."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from slipstream.errors import AnswerLost, ExplorerAway, ExplorerRefused, ExplorerUnavailable
from slipstream.metrics import Metrics
from slipstream.redaction import Redactor
from slipstream.runs.breaker import CircuitBreaker
from slipstream.runs.explorer import ExplorerClient
from slipstream.store import runs
from slipstream.store.bodies import pack, unpack
from slipstream.store.database import Database
from slipstream.store.runs import ClaimedRun

_log = structlog.get_logger(__name__)

_LONGEST_BACKOFF = 60.0
"""Seconds between two attempts of one run, at most, whatever the Explorer asks for."""


class ShadowCaller:
    """Sends planned runs to the Explorer, a bounded number at a time.

    429, 5xx and transport errors are tried again, up to `max_attempts` times, with exponential backoff and full
    jitter (M. Brooker, "Exponential Backoff And Jitter", 2015). While the breaker is open nothing is sent. What fails
    meanwhile, or because nobody was there, costs its run no attempt: the Explorer's absence is no property of a run.

    What is stored of an answer is redacted, like all that is stored.

    Args:
        grace: seconds that an answer waits for feedback before it is scored.
        version: the policy version known at this moment.
        clock: Unix seconds.
        answered: called when there is something to score.
        wake: called when there is room for another run.
    """

    def __init__(
        self,
        database: Database,
        explorer: ExplorerClient,
        breaker: CircuitBreaker,
        redactor: Redactor,
        metrics: Metrics,
        *,
        concurrency: int,
        max_attempts: int,
        grace: float,
        version: Callable[[], int | None],
        clock: Callable[[], float],
        rng: random.Random,
        answered: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._explorer = explorer
        self._breaker = breaker
        self._redactor = redactor
        self._metrics = metrics
        self._concurrency = concurrency
        self._max_attempts = max_attempts
        self._grace = grace
        self._version = version
        self._clock = clock
        self._rng = rng
        self._answered = answered
        self._wake = wake
        self._active: dict[asyncio.Task[None], ClaimedRun] = {}
        self._lost: list[ClaimedRun] = []

    async def prepare(self) -> None:
        """Send again what was on its way when the sidecar last ended."""
        async with self._database.write() as session:
            await runs.release_running(session)

    async def step(self) -> bool:
        """Start as many runs as there is room for. A run that ends wakes the next step itself."""
        room = self._concurrency - len(self._active)
        admitted = self._breaker.admits()
        take = room if admitted is None else min(room, admitted)
        if take <= 0:
            return False
        lost = tuple(self._lost)
        async with self._database.write() as session:
            for run in lost:
                await runs.postpone(session, run.pk, run.attempts, self._clock())
            claimed = await runs.claim(session, take, self._clock())
        del self._lost[: len(lost)]  # others may have come behind them meanwhile
        for run in claimed:
            self._breaker.started()
            task = asyncio.create_task(self._run(run), name=f"run {run.group_id}/{run.run_id}")
            self._active[task] = run
            task.add_done_callback(self._finished)
        return False

    async def stop(self) -> None:
        """End what is on its way; it is sent again at the next start."""
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)

    async def drained(self) -> None:
        """Wait for the runs that are on their way."""
        while self._active:
            await asyncio.gather(*self._active, return_exceptions=True)

    @property
    def active(self) -> int:
        return len(self._active)

    def _finished(self, task: asyncio.Task[None]) -> None:
        run = self._active.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("run_interrupted", group_id=run.group_id, run_id=run.run_id, error=repr(error))
            self._lost.append(run)  # the store failed: it is sent again once the store takes writes
        self._wake()

    async def _run(self, run: ClaimedRun) -> None:
        with structlog.contextvars.bound_contextvars(task_id=run.task_id, group_id=run.group_id, run_id=run.run_id):
            started = time.monotonic()
            version = self._version()
            try:
                request = await self._explorer.request_for(await asyncio.to_thread(unpack, run.request))
                answer = await self._explorer.chat(request)
            except ExplorerRefused as error:
                self._breaker.succeeded()  # it is there, and answers
                await self._fail(run, f"refused: {error}", error.said)
                return
            except AnswerLost as error:
                self._breaker.succeeded()
                await self._retry(run, error, run.attempts + 1)
                return
            except ExplorerUnavailable as error:
                away = isinstance(error, ExplorerAway)
                self._breaker.failed(there=error.status == 500 and not away)
                await self._retry(run, error, run.attempts + (self._breaker.state == "closed" and not away))
                return
            except Exception as error:  # noqa: BLE001 - what nobody foresaw would else be tried for ever
                self._breaker.failed()
                await self._fail(run, f"could not be sent: {type(error).__name__}")
                return
            self._breaker.succeeded()
            latency, now = time.monotonic() - started, self._clock()
            packed = await asyncio.to_thread(self._packed, request, answer)
            async with self._database.write() as session:
                kept = await runs.answer(
                    session,
                    run.pk,
                    msg_id=answer["id"],
                    request=packed[0],
                    answer=packed[1],
                    latency=latency,
                    policy_version=version,
                    now=now,
                    due_at=now + self._grace,
                )
            if kept:
                self._metrics.runs.labels("answered").inc()
                self._answered()

    def _packed(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> tuple[bytes, bytes]:
        return pack(request), pack(self._redactor.redact(answer))

    async def _retry(self, run: ClaimedRun, error: ExplorerUnavailable, attempts: int) -> None:
        if attempts >= self._max_attempts:
            await self._fail(run, f"{attempts} attempts: {error}", error.said)
            return
        backoff = self._rng.uniform(0, min(_LONGEST_BACKOFF, 2.0**attempts))
        self._metrics.run_retries.inc()
        _log.info("run_postponed", attempts=attempts, error=str(error))
        async with self._database.write() as session:
            wait = max(backoff, min(_LONGEST_BACKOFF, error.retry_after or 0.0))
            await runs.postpone(session, run.pk, attempts, self._clock() + wait)

    async def _fail(self, run: ClaimedRun, reason: str, said: str = "") -> None:
        """The reason goes to the log, which holds no bodies, and with what the Explorer said to the store."""
        _log.warning("run_failed", reason=reason)
        in_full = self._redactor.redact(f"{reason} {said}".rstrip())
        async with self._database.write() as session:
            failed = await runs.fail(session, run.pk, in_full, self._clock())
        if failed:
            self._metrics.runs.labels("failed").inc()
            self._answered()
