"""The webhook mode: the agents of selected tasks are run again by an endpoint of their own, which is told to."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from typing import Any

import httpx
import structlog
from pydantic import ValidationError

from slipstream.errors import RequestError
from slipstream.explorer.watch import ExplorerWatch
from slipstream.http.encodings import Undecodable
from slipstream.http.validation import describe
from slipstream.jsontext import from_json
from slipstream.memory.parsing import memory_of
from slipstream.runs.breaker import CircuitBreaker
from slipstream.runs.budget import Budget
from slipstream.runs.ending import EndingBody
from slipstream.runs.replay import Replays, base_path
from slipstream.stages.context import RUNNERS, Context
from slipstream.store import sidecars, webhook
from slipstream.store.webhook import ClaimedReplay
from slipstream.tenants import DEFAULT, split
from slipstream.webhooks.answers import whole
from slipstream.webhooks.outgoing import TargetRefused, outgoing_client
from slipstream.webhooks.signature import signed, signing_key

_log = structlog.get_logger(__name__)

_LONGEST_BACKOFF = 60.0
"""Seconds between two tries, at most."""

_CONNECT = 10.0
"""Seconds for a connection. One that does not open is nobody's answer, and leaves the run its agent's whole time."""

_JITTER = random.Random()  # noqa: S311 - spreads retries, guards nothing

_BUSY = (429, 500)
"""Statuses of somebody who is there; others may be those of a proxy in front."""

_LARGEST_ANSWER = 1024**2
"""Bytes, of an answer that holds a reward."""


class WebhookCaller:
    """Tells the endpoint about planned runs, so many under way at a time, and takes their ends from its answers.

    A try that did not arrive is repeated only while the run has made no call: one whose agent has begun may still be
    under way there. While the breaker is open none is told of. What fails meanwhile, or because nobody was there, costs
    its run no attempt: the endpoint's absence is no property of a run.

    Args:
        breaker: of the endpoint.
        watch, budget: nothing is begun while the Explorer does not answer, or the budget is spent.

    Attributes:
        breaker: of the endpoint.
        error: why the last try that failed did; None once one went well.
    """

    def __init__(
        self, context: Context, ends: Replays, breaker: CircuitBreaker, watch: ExplorerWatch, budget: Budget
    ) -> None:
        settings = context.settings
        told = settings.runs.webhook
        assert told.url is not None, "checked with the settings"
        assert told.secret is not None, "as well"
        self._stages = context.stages
        self._database = context.database
        self._ends = ends
        self.breaker = breaker
        self.error: str | None = None
        self._settings = told
        self._url = told.url
        self._key = signing_key(told.secret.get_secret_value())
        self._metrics = context.metrics
        self._membership = context.membership
        self._clock = context.clock
        self._parsing = context.parsing
        self._watch = watch
        self._budget = budget
        self._base_url = told.base_url or settings.listen.url
        self._concurrency = settings.runs.concurrency
        self._open_for = max(settings.runs.replay_timeout, told.timeout)
        self._clip = settings.rewards.clip
        self._active: dict[asyncio.Task[None], int] = {}
        """By their run's key in the store."""
        self._interrupted: set[int] = set()
        """Runs of which the endpoint may know, and whose end, or that they are its own now, was not stored."""
        self._unheard = False
        """Runs may have been claimed and this sidecar not have heard of it."""
        # A try as a whole has one limit, in `_run`; httpx's own would apply to each read alone.
        self._client = outgoing_client(told.allow_private, timeout=httpx.Timeout(None, connect=_CONNECT))

    async def step(self) -> bool:
        """Begin as many runs as there is room for."""
        admitted = self.breaker.admits() if self._watch.up is True and self._budget.open else 0
        now = self._clock()
        if not self._unheard:
            if admitted == 0:
                return False
            async with self._database.read() as session:
                if not await webhook.waiting(session, now):
                    return False
        try:
            claimed = await self._claim(admitted, now)
        except Exception:
            self._unheard = True
            raise
        self._unheard = False
        self._metrics.replays.labels("opened").inc(len(claimed))
        for run in claimed:
            self.breaker.started()
            task = asyncio.create_task(self._run(run), name=f"webhook {run.group_id}/{run.run_id}")
            self._active[task] = run.pk
            task.add_done_callback(self._done)
        return False

    async def _claim(self, admitted: int | None, now: float) -> list[ClaimedReplay]:
        async with self._database.write() as session:  # alone: there is room for so many, of all sidecars together
            await sidecars.hold(session, self._membership.id)
            if self._unheard:
                known = (*self._active.values(), *self._interrupted)
                await webhook.tell_again(session, [self._membership.id], now, but=known)
            room = self._concurrency - await webhook.begun(session)
            room = room if admitted is None else min(room, admitted)
            until = now + self._open_for
            return await webhook.claim(session, room, now, until, self._membership.id) if room > 0 else []

    async def aclose(self) -> None:
        """Break off what is on its way. Its runs stay open, for their agents may go on."""
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)
        await self._client.aclose()

    def _done(self, task: asyncio.Task[None]) -> None:
        run = self._active.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._interrupted.add(run)
            self.breaker.failed()  # were it the trial, there would be no other
            _log.error("webhook_interrupted", task=task.get_name(), error=repr(error))
        self._stages.wake(*RUNNERS)

    async def _run(self, run: ClaimedReplay) -> None:
        with structlog.contextvars.bound_contextvars(task_id=run.task_id, group_id=run.group_id, run_id=run.run_id):
            try:
                async with asyncio.timeout(self._settings.timeout):
                    status, answer = await self._post(await self._body(run), run)
            except TimeoutError:
                why = f"no answer within {self._settings.timeout:g} s (runs.webhook.timeout)"
                self._failed(why, there=True)
                await self._fail(run, why)
            except TargetRefused as error:
                self._went_well()  # nothing says that it is away
                await self._fail(run, f"{error} (runs.webhook.allow_private)")
            except Undecodable as error:
                self._went_well()
                await self._fail(run, f"its answer cannot be used: {error}")
            except httpx.TransportError as error:
                why = f"{type(error).__name__}: {error}"
                self._failed(why)
                await self._again(run, why, away=isinstance(error, httpx.ConnectError | httpx.ConnectTimeout))
            else:
                if status == 429 or status >= 500:
                    self._failed(f"HTTP {status}", there=status in _BUSY)
                    await self._again(run, f"HTTP {status}")
                    return
                self._went_well()
                if status == 202:
                    async with self._database.write(alone=False) as session:
                        await webhook.accepted(session, run)
                    _log.debug("webhook_accepted")  # it says itself when the run ends
                elif status == 200:
                    await self._end(run, answer)
                else:
                    await self._fail(run, f"HTTP {status}")

    async def _body(self, run: ClaimedReplay) -> bytes:
        """Build the body that tells the endpoint of a run."""
        text = await asyncio.to_thread(run.request.text)
        async with self._parsing.held(memory_of(text)):
            return await asyncio.to_thread(_body, run, text, self._base_url)

    def _went_well(self) -> None:
        self.breaker.succeeded()
        self.error = None

    def _failed(self, why: str, *, there: bool = False) -> None:
        self.breaker.failed(there=there)
        self.error = why

    async def _post(self, body: bytes, run: ClaimedReplay) -> tuple[int, bytes]:
        name = hashlib.blake2b(f"{run.group_id}/{run.run_id}".encode(), digest_size=16).hexdigest()
        headers = signed(self._key, f"run_{name}", int(self._clock()), body)
        headers["content-type"] = "application/json"
        async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            # of another status nothing but that is of interest, however long its page of HTML is
            answer = await whole(response, _LARGEST_ANSWER) if response.status_code == 200 else b""
        return response.status_code, answer

    async def _end(self, run: ClaimedReplay, answer: bytes) -> None:
        try:
            ending = EndingBody.model_validate_json(answer or b"{}").as_ending(*self._clip)
        except ValidationError as error:
            why = describe(error.errors(include_url=False), EndingBody, values=False)
            await self._fail(run, f"its answer cannot be used: {why}")
            return
        except RequestError as error:
            await self._fail(run, f"its answer cannot be used: {error}")
            return
        try:
            await self._ends.end(run.task_id, run.run_id, ending)
        except RequestError as error:  # it had ended before
            _log.debug("webhook_ended_before", reason=str(error))

    async def _again(self, run: ClaimedReplay, why: str, *, away: bool = False) -> None:
        attempts = run.attempts + (self.breaker.state == "closed" and not away)
        if attempts < self._settings.max_attempts:
            backoff = _JITTER.uniform(0, min(_LONGEST_BACKOFF, 2.0**attempts))
            async with self._database.write() as session:
                if await webhook.postpone(session, run, attempts, backoff, self._clock()):
                    self._metrics.run_retries.inc()
                    _log.debug("run_postponed", attempts=attempts, error=why)
                    return
        await self._fail(run, f"{run.attempts + 1} attempts: {why}")

    async def _fail(self, run: ClaimedReplay, why: str) -> None:
        _log.warning("webhook_failed", reason=why)
        await self._ends.give_up(run.pk, f"the webhook: {why}", told_by=run.owner)


def _body(run: ClaimedReplay, request: bytes, base_url: str) -> bytes:
    tenant, task_id = split(run.task_id)
    return json.dumps(
        {
            "task_id": task_id,
            **({} if tenant == DEFAULT else {"tenant": tenant}),
            "group_id": run.group_id,
            "run_id": run.run_id,
            "base_url": base_url + base_path(run.task_id, run.run_id),
            "input": _input(from_json(request)[0]),
            "metadata": run.metadata,
            "labels": run.labels,
        }
    ).encode()  # in ASCII: texts hold lone surrogates too


def _input(request: dict[str, Any]) -> Any:
    """The content of the user's message that the task begins with: the last one that its first call holds. Those before
    it are of the session's earlier tasks."""
    asked = [message for message in request.get("messages") or () if message.get("role") == "user"]
    return asked[-1].get("content") if asked else None
