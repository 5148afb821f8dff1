"""Agent replays: the agent makes the policy's calls itself, at an address of its run, and says when the run ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

import structlog
from starlette.types import Message as Event
from starlette.types import Receive, Send

from slipstream.dialects.form import Dialect
from slipstream.dialects.translators import TRANSLATORS
from slipstream.errors import RequestError
from slipstream.explorer.client import ExplorerClient
from slipstream.facade.chat import Chat
from slipstream.facade.chats import Chats
from slipstream.facade.translated import TranslatedChat
from slipstream.redaction.redactor import Redactor
from slipstream.runs.budget import Budget
from slipstream.runs.in_flight import Call, InFlightCalls
from slipstream.runs.replay_chat import ReplayChat
from slipstream.runs.replay_conversations import ReplayConversations
from slipstream.runs.replay_histories import AsAsked, ReplayHistories
from slipstream.stages.context import Context, Stage
from slipstream.store import audit, replays
from slipstream.store.audit import Action, Author, Write
from slipstream.store.replay_calls import NewCall
from slipstream.store.replays import Ended, Ending, Group, Known
from slipstream.store.states import RunState
from slipstream.tenants import name_of, tenant_of
from slipstream.tracing.catalogue import POLICY_CALL, Attribute, SpanName
from slipstream.tracing.context import TraceParent
from slipstream.usage import Kind

_log = structlog.get_logger(__name__)

_BATCH = 200
"""Runs given up in one transaction."""

_APART = 1e-6
"""Seconds between the beginnings of two calls, at least, for they are kept in that order; a clock may say the same
twice."""

_NOT_KEPT = "the store did not take one of its calls"
_CUT = "it was ended amid an answer that its agent had begun to read"
_NOBODY = "runs.mode is shadow since: no endpoint runs agents again"


class Replays:
    """The runs of agents that are run again by somebody else.

    A run is dropped whole where one of its calls came to nothing: what follows from an answer that the agent did not
    get, or not to its end, teaches nothing about the policy.

    Args:
        redactor: of what is stored.
        prompts: what redacts what agents ask before the Explorer gets it.
        budget: what calls are counted in; at its end no further runs are opened.
    """

    def __init__(
        self,
        context: Context,
        explorer: ExplorerClient,
        chats: Chats,
        redactor: Redactor,
        prompts: Redactor,
        budget: Budget,
    ) -> None:
        self._stages = context.stages
        self._database = context.database
        self._metrics = context.metrics
        self._membership = context.membership
        self._clock = context.clock
        self._explorer = explorer
        self._chats = chats
        self._redactor = redactor
        self._prompts = prompts
        self._budget = budget
        self._tracer = context.tracer
        settings = context.settings
        self._model_name = settings.explorer.served_model_name
        self._most_open = settings.runs.open
        self._timeout = settings.runs.replay_timeout
        self._grace = settings.rewards.grace
        self._under_way = InFlightCalls(context.database, context.membership)
        self._conversations = ReplayConversations(context.database, settings.capture.chains)
        hooked = any(rule.python is not None for rule in settings.capture.redact)
        self._histories = ReplayHistories(context.database, as_asked=prompts is not redactor, hooked=hooked)
        self._broken: set[int] = set()
        self._began = 0.0

    def registered(self) -> None:
        """From here on it writes in the name of a registration."""
        self._conversations.registered()

    async def give_up_planned(self) -> None:
        """Give up the runs that are planned: nobody will begin them."""
        more = True
        while more:
            async with self._database.write() as session:
                if pks := await replays.pending(session, _BATCH):
                    await replays.fail(session, pks, _NOBODY, self._clock())
            more = len(pks) == _BATCH

    async def step(self) -> bool:
        """Give up runs that nothing was heard of for too long. Returns True when more may be waiting."""
        now = self._clock()
        if self._broken:
            broken = list(self._broken)
            async with self._database.write() as session:
                self._failed(await replays.fail(session, broken, _NOT_KEPT, now))
            self._broken.difference_update(broken)
        await self._under_way.forget_ended()
        self._histories.forget_before(now - self._timeout)
        async with self._database.read() as session:  # nearly always nothing is due, and no writer waits for that
            if not await replays.due(session, 1, now, self._membership.id):
                return False
        reason = f"not ended within {self._timeout:g} s after its last call (runs.replay_timeout)"
        async with self._database.write() as session:
            due = await replays.due(session, _BATCH, now, self._membership.id)
            busy = [pk for pk in due if self._under_way.has(pk)]
            await replays.keep_open(session, busy, now + self._timeout, now)
            given_up = await replays.fail(session, [pk for pk in due if pk not in busy], reason, now)
        self._metrics.replays.labels("expired").inc(given_up)
        self._failed(given_up)
        return len(due) == _BATCH

    async def open(
        self, task_id: str, runs: int, labels: Sequence[str], metadata: Mapping[str, Any], session_id: str | None
    ) -> Group:
        """Begin a group of so many runs of a task.

        Raises:
            RequestError: 409, the task's last group is neither delivered nor dropped; 429, the budget is spent, or too
                many runs are open.
        """
        if not self._budget.open:
            text = "what runs may cost in an hour is spent (runs.budget); try again later"
            raise RequestError(text, status=429, code="budget_spent")
        labels, metadata = self._redactor.redact(list(labels)), self._redactor.redact(dict(metadata))
        now = self._clock()
        async with self._database.write() as session:
            if (other := await replays.under_way(session, task_id)) is not None:
                raise RequestError(
                    f"the task has a group that is neither delivered nor dropped: {other}",
                    param="task_id",
                    status=409,
                    code="already_open",
                )
            if (others := await replays.open_now(session)) + runs > self._most_open:
                text = f"{others} runs are open, and {self._most_open} may be (runs.open); end some, and try again"
                raise RequestError(text, param="runs", status=429, code="too_many_open")
            await replays.note_task(session, task_id, session_id, labels, metadata, now)
            group = await replays.open_runs(
                session, task_id, runs, now, state=RunState.OPEN, by_client=True, due_at=now + self._timeout
            )
        self._metrics.replays.labels("opened").inc(runs)
        _log.info("replay_opened", task_id=task_id, group_id=group.id, runs=runs)
        return group

    async def end(self, task_id: str, run_id: int, ending: Ending, by: Author | None = None) -> Ended:
        """End a run. Once this returns, it is in the store.

        Args:
            by: who said so; None for the answer of the webhook.

        Raises:
            RequestError: 404, there is none; 409, it has ended.
        """
        run = await self._known(task_id, run_id)
        said = self._redactor.redact(dict(ending.said))
        error = said.get("error") or (None if await self._under_way.read_to_the_end(run.pk) else _CUT)
        error = _NOT_KEPT if run.pk in self._broken else error
        now = self._clock()
        async with self._database.write() as session:
            if error is None and await self._under_way.read_elsewhere(session, run.pk):
                error = _CUT
            ending = Ending(ending.reward, ending.breakdown, error, said)
            ended = await replays.end(session, run.pk, ending, now + self._grace, now)
            if ended is not None and by is not None:
                await audit.note(session, Write(Action.RUN_END, str(run_id), "task_id", [task_id]), by, now)
        self._histories.forget(run.pk)
        if ended is None:
            raise _closed(await self._known(task_id, run_id), status=409)
        _log.debug("replay_ended", task_id=task_id, run_id=run_id, state=ended.state, calls=len(ended.msg_ids))
        if ended.state == RunState.FAILED:
            self._failed(1)
        else:
            self._metrics.runs.labels(ended.state).inc()
            self._stages.wake(Stage.SCORER if ended.state == RunState.ANSWERED else Stage.COMMITTER)
        if ended.state == RunState.SCORED and ending.reward is not None:
            self._metrics.rewards.observe(ending.reward)
        return ended

    async def admit(self, task_id: str, run_id: int) -> Known:
        """The run at this address, which takes calls.

        Raises:
            RequestError: 404, there is none; 410, it has ended.
        """
        run = await self._known(task_id, run_id)
        if run.state != RunState.OPEN:
            self._metrics.replay_calls.labels("straggler").inc()
            raise _closed(run, status=410)
        return run

    async def answer(
        self,
        task_id: str,
        run_id: int,
        dialect: Dialect,
        receive: Receive,
        send: Send,
        parent: TraceParent | None = None,
    ) -> None:
        """Carry a call of a run, with ASGI's callables; `parent` is the agent's span, if it has named one.

        Raises:
            RequestError: there is no answer; nothing was sent.
            SQLAlchemyError: it could not be stored; the end of the answer is not sent.
        """
        self._began = began = max(self._clock(), self._began + _APART)
        run = await self.admit(task_id, run_id)
        if run.last_began is not None:  # by another sidecar's clock
            began = max(began, run.last_began + _APART)
        call = await self._under_way.begin(run)
        if call is None:
            raise _closed(await self._known(task_id, run_id), status=410)
        own = ReplayChat(
            self._explorer,
            self._redactor,
            self._prompts,
            began,
            model_name=self._model_name,
            keep=lambda made, as_asked: self._keep(
                task_id, call, replace(made, instructed=instructed()), as_asked, dialect
            ),
            give_up=partial(self.give_up, run.pk),
            tried_again=self._metrics.run_retries.inc,
        )
        chat, instructed = self._in_dialect(own, dialect, run.pk)
        arrived = False

        async def send_on(message: Event) -> None:
            nonlocal arrived
            if message.get("body"):
                await self._under_way.is_read(call)
            await send(message)
            arrived = message["type"] == "http.response.body" and not message.get("more_body", False)

        asked = {
            **POLICY_CALL, Attribute.ASKED_BY: "replay", Attribute.REQUEST_MODEL: self._model_name,
            Attribute.DIALECT: dialect.value, Attribute.TENANT: tenant_of(task_id), Attribute.TASK: name_of(task_id),
            Attribute.RUN: run_id,
        }  # fmt: skip
        try:
            with self._tracer.span(SpanName.CHAT, asked, model=self._model_name, parent=parent):
                await self._chats.answer(chat, receive, send_on)
        except RequestError as error:
            await self.give_up(run.pk, f"a call failed: {error}")
            raise
        except Exception:  # of the store, mostly: the run is dropped once it takes writes again
            self._break(run.pk)
            raise
        finally:
            self._under_way.end(call)
        if not arrived:  # of a run that has ended before, or failed with its answer, nothing changes
            await self.give_up(run.pk, "a call was not answered: its agent went away")
        if not await self._under_way.forget(call):
            self._stages.wake(Stage.REPLAYS)

    def _in_dialect(self, chat: ReplayChat, dialect: Dialect, run_pk: int) -> tuple[Chat, Callable[[], bool]]:
        """The chat as its agent speaks, and what tells whether it begins with instructions for one call."""
        if dialect is Dialect.CHAT:
            return chat, lambda: False
        translated = TranslatedChat(chat, TRANSLATORS[dialect], partial(self._histories.earlier, run_pk))
        return translated, lambda: translated.instructed

    async def _keep(self, task_id: str, call: Call, made: NewCall, as_asked: AsAsked | None, dialect: Dialect) -> None:
        """Keep an answer as one of this run's.

        Raises:
            RequestError: 410, the run has ended meanwhile.
        """
        now = self._clock()
        async with self._conversations.adding(task_id, call.run_pk, made, now + self._timeout, now) as (session, kept):
            await self._budget.spend(session, 1, made.tokens, now)
            await self._under_way.tell_read(session, call)  # its end follows, or all of it
        if kept and dialect is not Dialect.CHAT:  # no chat names what was said before
            said = None if as_asked is None else as_asked._replace(instructed=made.instructed)
            self._histories.add(call.run_pk, made.msg_id, said, now)
        self._metrics.replay_calls.labels("whole" if kept else "straggler").inc()
        self._metrics.tokens.add(Kind.REPLAY, tenant_of(task_id), made.usage)
        if not kept:
            raise RequestError("the run has ended before this call did", status=410, code="run_closed")

    async def give_up(self, pk: int, reason: str, *, told_by: int | None = None) -> None:
        """The run has come to nothing, unless it has ended, or another sidecar than this one has told of it since."""
        try:
            async with self._database.write() as session:
                given_up = await replays.fail(
                    session, [pk], self._redactor.redact(reason), self._clock(), told_by=told_by
                )
        except Exception:
            self._break(pk)
            raise
        if given_up:
            self._histories.forget(pk)
            self._failed(given_up)

    def _break(self, pk: int) -> None:
        """Have this run given up by the next step that can."""
        self._broken.add(pk)
        self._stages.wake(Stage.REPLAYS)

    async def _known(self, task_id: str, run_id: int) -> Known:
        async with self._database.read() as session:
            run = await replays.find(session, task_id, run_id)
        if run is None:
            raise RequestError(
                f"the task {name_of(task_id)!r} has no run {run_id}", param="run_id", status=404, code="not_found"
            )
        return run

    def _failed(self, count: int) -> None:
        self._metrics.runs.labels("failed").inc(count)
        self._stages.wake(Stage.COMMITTER)


def _closed(run: Known, status: int) -> RequestError:
    why = f": {run.reason}" if run.reason else ""
    return RequestError(f"the run is not open, but {run.state}{why}", param="run_id", status=status, code="run_closed")


def base_path(task_id: str, run_id: int) -> str:
    """The path of a run's address, as an SDK's base_url: by the name that the task's tenant knows it by."""
    return f"/runs/{quote(name_of(task_id), safe='')}/{run_id}/v1"
