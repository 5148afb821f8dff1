"""Shadow calls: each planned run is one chat completion of the policy model."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import OperationalError

from slipstream.errors import AnswerLost, ExplorerAway, ExplorerRefused, ExplorerUnavailable
from slipstream.explorer.client import ExplorerClient, shadow_request
from slipstream.explorer.watch import ExplorerWatch
from slipstream.jsontext import from_json
from slipstream.memory.parsing import memory_of
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactionFailed
from slipstream.runs.breaker import CircuitBreaker
from slipstream.runs.budget import Budget
from slipstream.runs.first import FirstOfGroup
from slipstream.stages.context import Context, Stage
from slipstream.store import runs, shadow_requests, sidecars
from slipstream.store.bodies import pack
from slipstream.store.runs import Answered, ClaimedRun, Ended, Postponed
from slipstream.tenants import name_of, tenant_of
from slipstream.tracing.catalogue import POLICY_CALL, Attribute, Attributes, SpanName, answer_attributes
from slipstream.tracing.tracer import Span, call_key, policy_key
from slipstream.usage import Kind

_log = structlog.get_logger(__name__)

_LONGEST_BACKOFF = 60.0
"""Seconds between two attempts of one run, at most, whatever the Explorer asks for."""

_LONG_BODY = 64 * 1024
"""Bytes. A shorter one is dealt with in less time than a thread takes to be woken twice."""

_JITTER = random.Random()  # noqa: S311 - spreads retries, guards nothing

_Outcome = Answered | Ended | Postponed
_Result = TypeVar("_Result")


class ShadowCaller:
    """Sends planned runs to the Explorer, a bounded number at a time.

    429, 5xx and transport errors are tried again, up to `max_attempts` times, with exponential backoff and full
    jitter (M. Brooker, "Exponential Backoff And Jitter", 2015). While the breaker is open nothing is sent. What fails
    meanwhile, or because nobody was there, costs its run no attempt: the Explorer's absence is no property of a run.
    To an Explorer that came just now, runs go one by one until it has answered one.

    What comes back is stored a batch at a time, in the transaction that claims the next runs: whatever came while the
    one before was written. Where this sidecar's lease was lost meanwhile, its runs are another's, and nothing of them
    is stored. What is stored of an answer is redacted, like all that is stored.

    Args:
        budget: what may be spent; at its end runs wait.
    """

    def __init__(
        self,
        context: Context,
        explorer: ExplorerClient,
        watch: ExplorerWatch,
        breaker: CircuitBreaker,
        redactor: Redactor,
        budget: Budget,
    ) -> None:
        self._context = context
        self._database = context.database
        self._metrics = context.metrics
        self._clock = context.clock
        self._explorer = explorer
        self._watch = watch
        self._breaker = breaker
        self._redactor = redactor
        self._budget = budget
        self._tracer = context.tracer
        settings = context.settings
        self._concurrency = settings.runs.concurrency
        self._max_attempts = settings.runs.max_attempts
        self._grace = settings.rewards.grace
        self._active: dict[asyncio.Task[_Outcome], ClaimedRun] = {}
        self._back: deque[tuple[ClaimedRun, _Outcome]] = deque()
        self._first_failure = FirstOfGroup()
        self._answered_since: float | None = None
        """The `ExplorerWatch.since` of the Explorer that last answered a run."""
        self._unheard = False
        """Runs may have been claimed and this sidecar not have heard of it."""

    async def step(self) -> bool:
        """Store what came back, and start as many runs as there is room for. A run that comes back wakes the next
        step itself."""
        room = (self._concurrency if self._proven else 1) - len(self._active)
        admitted = self._breaker.admits()
        take = max(0, room if admitted is None else min(room, admitted)) if self._budget.open else 0
        if not (take or self._back or self._unheard):
            return False
        for run in await self._store(take):
            self._breaker.started()
            task = asyncio.create_task(self._run(run), name=f"run {run.group_id}/{run.run_id}")
            self._active[task] = run
            task.add_done_callback(self._came_back)
        return False

    async def stop(self) -> None:
        """End what is on its way; it is sent again once this sidecar's lease has ended."""
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)

    async def drained(self) -> None:
        """Wait for the runs that are on their way, and store what comes back."""
        while self._active or self._back:
            await asyncio.gather(*self._active, return_exceptions=True)
            await self._store(0)

    @property
    def active(self) -> int:
        return len(self._active)

    @property
    def _proven(self) -> bool:
        """Return whether a run was answered since the Explorer was last seen to come. Trinity makes the tables of its
        history when it records the first answer, and where several are recorded at once they may never be made."""
        return self._answered_since is not None and self._answered_since == self._watch.since

    def _came_back(self, task: asyncio.Task[_Outcome]) -> None:
        run = self._active.pop(task)
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            self._back.append((run, task.result()))
        else:
            self._back.append((run, self._again(run, error)))
        self._context.stages.wake(Stage.SHADOW)

    def _again(self, run: ClaimedRun, error: BaseException) -> Postponed:
        """Postpone a run after an unexpected error: it is sent again."""
        _log.error("run_interrupted", group_id=run.group_id, run_id=run.run_id, error=repr(error))
        return Postponed(run.pk, run.owner, run.attempts, 0.0)

    async def _store(self, take: int) -> list[ClaimedRun]:
        """Store what came back, and claim so many runs. While the store is away, what came back stays here."""
        try:
            return await self._write(len(self._back), take)
        except OperationalError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, it is about one of them
            for _ in range(len(self._back)):  # what the store does not take must not hold up the others
                try:
                    await self._write(1, 0)
                except OperationalError:
                    raise
                except Exception as error:  # noqa: BLE001 - this one
                    run, _ = self._back[0]
                    self._back[0] = run, self._again(run, error)
                    await self._write(1, 0)
            return []

    async def _write(self, count: int, take: int) -> list[ClaimedRun]:
        """Store the first of what came back, and claim runs, in one transaction."""
        try:
            claimed = await self._transact(count, take)
        except Exception:
            self._unheard |= take > 0
            raise
        self._unheard = False
        return claimed

    async def _transact(self, count: int, take: int) -> list[ClaimedRun]:
        back = [outcome for _, outcome in itertools.islice(self._back, count)]
        now = self._clock()
        owner, tokens = self._context.membership.id, self._budget.unstored
        # runs may be taken while others write, but where a budget says how many all sidecars together may take
        async with self._database.write(alone=bool(back) or self._budget.limited) as session:
            answered = await runs.answer(session, [one for one in back if isinstance(one, Answered)], now)
            failed = await runs.end(session, [one for one in back if isinstance(one, Ended)], now)
            await runs.postpone(session, [one for one in back if isinstance(one, Postponed)], now)
            claimed: list[ClaimedRun] = []
            if take or self._unheard:
                await sidecars.hold(session, owner, others_ended=self._unheard)
            if self._unheard:
                known = [*self._active.values(), *(run for run, _ in self._back)]
                await runs.unclaim(session, owner, [run.pk for run in known])
            take = await self._budget.room(session, take, now)
            if take:
                claimed = await runs.claim(session, owner, take, now)
            await self._budget.spend(session, len(claimed), tokens, now)
        self._budget.unstored -= tokens
        for _ in back:
            self._back.popleft()
        self._metrics.runs.labels("answered").inc(answered)
        self._metrics.runs.labels("failed").inc(len(failed))
        if answered or failed:
            self._context.stages.wake(Stage.SCORER)
        return claimed

    async def _run(self, run: ClaimedRun) -> _Outcome:
        with structlog.contextvars.bound_contextvars(task_id=run.task_id, group_id=run.group_id, run_id=run.run_id):
            async with AsyncExitStack() as memory:
                started = time.monotonic()
                version, since = self._watch.version, self._watch.since
                try:
                    model = await self._explorer.model()
                    content, request = await self._request(run, model)
                    with self._span(run, model, version) as span:
                        answer = await memory.enter_async_context(self._explorer.chat(content))
                        span.set(answer_attributes(answer))
                        span.remember(policy_key(answer["id"]))
                except ExplorerRefused as error:
                    self._breaker.succeeded()  # it is there, and answers
                    return self._fail(run, f"refused: {error}", error.said)
                except AnswerLost as error:
                    self._breaker.succeeded()
                    return self._retry(run, error, run.attempts + 1)
                except ExplorerUnavailable as error:
                    away = isinstance(error, ExplorerAway)
                    self._breaker.failed(there=error.status == 500 and not away)
                    return self._retry(run, error, run.attempts + (self._breaker.state == "closed" and not away))
                except Exception as error:  # noqa: BLE001 - what nobody foresaw would else be tried for ever
                    self._breaker.failed()
                    return self._fail(run, f"could not be sent: {type(error).__name__}")
                self._breaker.succeeded()
                self._answered_since = since
                self._budget.used(answer)
                self._metrics.tokens.used(Kind.SHADOW, tenant_of(run.task_id), answer)
                latency = time.monotonic() - started
                try:
                    packed = await _aside(len(content), lambda: pack(self._redactor.redact_answer(answer)))
                except RedactionFailed as error:
                    return self._fail(run, str(error))
                return Answered(run.pk, run.owner, answer["id"], request, packed, latency, version, self._grace)

    def _span(self, run: ClaimedRun, model: str, version: int | None) -> AbstractContextManager[Span]:
        asked: Attributes = {
            **POLICY_CALL,
            Attribute.ASKED_BY: "shadow",
            Attribute.REQUEST_MODEL: model,
            Attribute.VERSION: version,
            Attribute.TENANT: tenant_of(run.task_id),
            Attribute.TASK: name_of(run.task_id),
            Attribute.GROUP: run.group_id,
            Attribute.RUN: run.run_id,
            Attribute.MSG: None if run.msg_id is None else name_of(run.msg_id),
            Attribute.ATTEMPT: run.attempts + 1,
        }
        follows = None if run.msg_id is None else call_key(run.msg_id)
        return self._tracer.span(SpanName.CHAT, asked, model=model, follows=follows)

    async def _request(self, run: ClaimedRun, model: str) -> tuple[bytes, bytes]:
        """The request of a run, as JSON and as it is stored: the Explorer may take minutes, and so long its values are
        not kept."""
        text = await _aside(run.request.size, run.request.text)

        def written() -> tuple[bytes, bytes]:
            call: dict[str, Any] = from_json(text)[0]
            request = shadow_request(call, model)
            packed = shadow_requests.packed(request, call)
            return json.dumps(request).encode(), packed  # in ASCII: texts hold lone surrogates too

        async with self._context.parsing.held(memory_of(text)):
            return await _aside(len(text), written)

    def _retry(self, run: ClaimedRun, error: ExplorerUnavailable, attempts: int) -> _Outcome:
        if attempts >= self._max_attempts:
            return self._fail(run, f"{attempts} attempts: {error}", error.said)
        backoff = _JITTER.uniform(0, min(_LONGEST_BACKOFF, 2.0**attempts))
        self._metrics.run_retries.inc()
        _log.debug("run_postponed", attempts=attempts, error=str(error))
        wait = max(backoff, min(_LONGEST_BACKOFF, error.retry_after or 0.0))
        return Postponed(run.pk, run.owner, attempts, wait)

    def _fail(self, run: ClaimedRun, reason: str, said: str = "") -> Ended:
        """The reason goes to the log, which holds no bodies, and with what the Explorer said to the store."""
        log = _log.warning if self._first_failure(run.group_id) else _log.debug
        log("run_failed", reason=reason)
        return Ended(run.pk, run.owner, reason=self._redactor.redact(f"{reason} {said}".rstrip()))


async def _aside(size: int, work: Callable[[], _Result]) -> _Result:
    """Work on a body of so many bytes: a long one in a thread, as the control API shares this event loop."""
    return await asyncio.to_thread(work) if size > _LONG_BODY else work()
