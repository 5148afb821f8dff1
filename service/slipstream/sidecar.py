"""The training side, put together: what turns captured calls into delivered experiences.

    CaptureWriter ─▶ Recorder ─▶ Planner ─▶ ShadowCaller ─▶ Scorer ─▶ Committer ─▶ Explorer
          │             │           │            │             │          │
          └─────────────┴───────────┴────────────┴── Database ─┴──────────┘      ExplorerWatch, Retention beside it

Each stage is a worker over the store and wakes the next one.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AsyncExitStack, suppress

import structlog
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.types import Receive, Send

from slipstream import logs, shutdown
from slipstream.access.expiry import KeyExpiry
from slipstream.access.known_keys import KnownKeys
from slipstream.access.ledger import KeyUse, Ledger
from slipstream.capture.outcomes import TICK as OUTCOMES_TICK
from slipstream.capture.outcomes import OutcomeWindow
from slipstream.capture.retention import Retention
from slipstream.capture.stages import Capture
from slipstream.capture.traffic import TICK as TRAFFIC_TICK
from slipstream.capture.traffic import TrafficWindow
from slipstream.cluster.clock import TICK as CLOCK_TICK
from slipstream.cluster.clock import ClockWatch
from slipstream.cluster.membership import RENEWALS, Membership
from slipstream.cluster.registration import Registration
from slipstream.delivery.stage import Deliveries
from slipstream.dialects.form import Dialect
from slipstream.dialects.translators import TRANSLATORS
from slipstream.doctor.uncaptured import UncapturedLog
from slipstream.errors import StoreAway
from slipstream.evaluation.servers import PolicyServers
from slipstream.evaluation.stage import Evaluations
from slipstream.evaluation.statistics import Judgement
from slipstream.evaluation.verdicts import Verdicts
from slipstream.experiments.stage import Experiments
from slipstream.explorer.answered_by import TICK as ANSWERED_TICK
from slipstream.explorer.answered_by import AnsweredBy
from slipstream.explorer.client import ExplorerClient
from slipstream.explorer.serving_writer import ServingWriter
from slipstream.explorer.watch import ExplorerWatch
from slipstream.facade.chat import Chat, FacadeChat, Whole
from slipstream.facade.chats import Chats
from slipstream.facade.naming import renamed_models
from slipstream.facade.translated import TranslatedChat, unknown
from slipstream.isolation import Isolation
from slipstream.memory import trim
from slipstream.metrics import Metrics
from slipstream.notifications.stage import Notifier
from slipstream.proxy.metrics import SharedCounters
from slipstream.redaction.redactor import Redactor
from slipstream.rewards import RewardModel
from slipstream.rollouts.lane import ServedLane
from slipstream.rollouts.stage import Rollouts
from slipstream.runs.budget import TICK as BUDGET_TICK
from slipstream.runs.budget import Budget
from slipstream.runs.planning import Planner
from slipstream.runs.scoring import Scorer
from slipstream.runs.stages import Runs
from slipstream.selection import Selector
from slipstream.serving.page import ServingPage
from slipstream.settings.sidecar import Settings
from slipstream.stages.agenda import Agenda
from slipstream.stages.context import RUNNERS, Context, Stage
from slipstream.stages.timers import Timers
from slipstream.stages.token_days import TICK as TOKENS_TICK
from slipstream.stages.token_days import TokenDays
from slipstream.stages.worker import Worker
from slipstream.store import evaluations, quarantine, ready_groups, replays, runs, versions
from slipstream.store.cipher import Cipher
from slipstream.store.database import Database
from slipstream.store.sidecars import TakenOver
from slipstream.tracing.catalogue import POLICY_CALL, Attribute, SpanName
from slipstream.tracing.context import TraceParent
from slipstream.tracing.start import tracer_of
from slipstream.versions.digests import TICK as WEIGHTS_TICK
from slipstream.versions.digests import WeightDigests
from slipstream.versions.registry import VersionRegistry

_log = structlog.get_logger(__name__)

_RETENTION_TICK = 60.0

_VERSIONS_TICK = 1.0
"""Seconds: a Trainer that keeps one checkpoint deletes each when the next is written, a step of training later."""


class Sidecar:
    """Everything but the proxy: its stages, from the settings.

    Args:
        counters: what the proxy's workers count.
        before: the registration of the training side in whose place this one was started, if it was.
        page: says which users the lane answers; None where it answers none.
        ledger: the use of each API key, which workers count; None where there are none.

    Attributes:
        started: the store was there, and the stages run.
        the other parts: for the routes.
    """

    def __init__(
        self,
        settings: Settings,
        counters: SharedCounters,
        before: Registration | None = None,
        page: ServingPage | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.ledger = ledger or Ledger(1)
        self.started = False
        self._ended = False
        self.metrics = Metrics(CollectorRegistry())
        self.metrics.registry.register(counters)
        self.metrics.registry.register(KeyUse(self.ledger))
        self.keys = KnownKeys(settings.access)
        self.key_expiry = KeyExpiry(self.keys, time.time)
        self.outcomes = OutcomeWindow(self.metrics, counters)
        self.traffic = TrafficWindow(counters, self.outcomes)
        keys = settings.store.keys
        self.database = Database(settings.store.url, Cipher(keys) if keys else None)
        self.membership = Membership(
            self.database,
            name=f"{socket.gethostname()}:{settings.listen.port}",
            lease=settings.store.lease,
            clock=time.time,
            monotonic=time.monotonic,
            before=before or Registration(),
            registered=self._registered,
            took_over=self._took_over,
        )
        tracer = tracer_of(settings.otel, self.metrics)
        self.context = context = Context(settings, self.database, self.metrics, self.membership, tracer=tracer)
        self.explorer = ExplorerClient(
            settings.explorer.base_url,
            context.parsing,
            model=settings.explorer.model,
            chat_timeout=settings.runs.timeout,
            connect_timeout=settings.explorer.connect_timeout,
            tls=settings.explorer.tls,
        )
        self.watch = ExplorerWatch(self.database, self.explorer, self.metrics, clock=time.time)
        self.serving = ServingWriter(context, page)
        self.versions = VersionRegistry(settings.serving, self.database, clock=time.time)
        self._isolation = isolation = Isolation(
            content_memory=settings.isolation.content_memory,
            content_timeout=settings.isolation.content_timeout,
            user_memory=settings.isolation.user_memory,
            start_timeout=settings.isolation.start_timeout,
        )
        isolation.user.prepare(logs.configure, settings.log.level, settings.log.format)
        self.redactor = Redactor(settings.capture.redact, isolation)
        self._prompts = self.redactor if settings.explorer.redact else Redactor([])
        self.selector = Selector(settings.selection, time.monotonic, isolation, settings.datasets.held_out)
        self.capture = Capture(context, self.redactor, self.selector)
        self.planner = Planner(context, self.selector)
        self.chats = Chats(settings.explorer, settings.facade, self.watch, context.parsing, tracer)
        self.runs = Runs(context, self.explorer, self.watch, self.chats, self.redactor, self._prompts)
        self._rewards = RewardModel(settings.rewards, self.metrics, isolation)
        judge_calls = settings.rewards.judge_calls_per_hour
        self.judging = Budget(self.database, self.metrics, "judge", requests=judge_calls, clock=time.time)
        self.scorer = Scorer(context, self._rewards, self.judging)
        self.deliveries = Deliveries(context)
        history = self.deliveries.history
        self.answered_by = None if history is None else AnsweredBy(self.database, history, self.watch, clock=time.time)
        lane = settings.serving.lane
        put = None if lane is None or lane.directory is None else self.versions.put_in_lane
        self.rollouts = Rollouts(context, ServedLane(self.serving, counters, put), isolation, self.judging)
        self.verdicts = Verdicts(settings.evaluation, self.rollouts)
        compared = ServedLane(self.serving, counters, put)
        self.experiments = Experiments(context, compared, isolation, self.judging, self.verdicts)
        servers = PolicyServers(settings, self.explorer, self.versions.in_lane, context.parsing)
        self.evaluations = Evaluations(context, isolation, self.judging, servers)
        self.notifier = Notifier(context)
        retention = Retention(
            self.database,
            self.metrics,
            retention=settings.capture.retention,
            audit_retention=settings.audit.retention,
            clock=time.time,
        )
        self.token_days = TokenDays(self.database, self.metrics.tokens, clock=time.time)
        uncaptured = UncapturedLog(self.outcomes, time.monotonic, wanted=settings.capture.rate > 0)
        # A lease must not depend on the time of day, so that these two follow the event loop's clock, not a timer.
        renewals = settings.store.lease / RENEWALS
        self._renewing = Worker("membership", self.membership.renew, renewals)
        timers = context.timers
        self._workers = (
            *self.capture.workers,
            context.stages.add(Stage.PLANNER, self.planner.step),
            *self.runs.workers,
            context.stages.add(Stage.SCORER, self.scorer.step),
            self.deliveries.worker,
            *self.serving.workers,
            self.rollouts.worker,
            self.experiments.worker,
            self.evaluations.worker,
            *((self.notifier.worker,) if self.notifier.worker is not None else ()),
            Worker("successor", self.membership.take_over, renewals),
            Worker("clock", ClockWatch(self.database, clock=time.time, monotonic=time.monotonic).step, CLOCK_TICK),
            Agenda(context).worker,
            *((timers.stage("judging", BUDGET_TICK, self.judging.step),) if self.judging.limited else ()),
            *(
                (timers.stage("evaluation_budget", BUDGET_TICK, self.evaluations.budget.step),)
                if self.evaluations.budget.limited
                else ()
            ),
            timers.stage("watch", settings.explorer.poll_interval, self.watch.step),
            *(self._of_checkpoints(timers) if settings.serving.checkpoints else ()),
            *((timers.stage("answered_by", ANSWERED_TICK, self.answered_by.step),) if self.answered_by else ()),
            timers.stage("retention", min(_RETENTION_TICK, settings.capture.retention), retention.step),
            timers.stage("token_days", TOKENS_TICK, self.token_days.step),
            timers.stage("outcomes", OUTCOMES_TICK, uncaptured.step),
            timers.stage("traffic", TRAFFIC_TICK, self.traffic.step),
            timers.stage("memory", trim.TICK, trim.Trimmer().step),
        )

    def _of_checkpoints(self, timers: Timers) -> tuple[Worker, ...]:
        """The stages that look at the Trainer's directory."""
        digests = WeightDigests(self.settings.serving, self.database)
        return (
            timers.stage("versions", _VERSIONS_TICK, self.versions.step),
            timers.stage("weights", WEIGHTS_TICK, digests.step),
        )

    async def start(self) -> None:
        """Open the store, take up what the last process left, and start the stages.

        Raises:
            ConfigError: the store cannot be opened.
            StoreAway: at the moment; nothing has started, and this may be called again.
        """
        await self.database.open()
        try:
            await self.membership.start()
            await self.runs.take_up()
        except OperationalError as error:
            if self.database.shared:
                raise StoreAway(f"store.url: it went away again ({error.orig})") from error
            raise
        if not self.settings.rewards.calculators:
            _log.warning("nothing_can_be_scored", key="rewards.calculators", found="an empty list")
        self.context.timers.start()
        for worker in (self._renewing, *self._workers):
            worker.start()
        self.deliveries.triggers.start()
        self.started = True

    async def end_work(self, *, commits: bool = True) -> None:
        """Store what was captured, end or leave what runs, and deliver what is ready.

        Args:
            commits: there is a last commit; without it the process that takes this one's place makes the next.
        """
        if not self.started or self._ended:
            return
        self._ended = True
        self.deliveries.triggers.stop()
        self.context.timers.stop()
        # What is taken in is in memory alone, no call is placed twice, and a commit's answer is heard once.
        one_step = (*self.capture.stages, self.deliveries.worker)
        await asyncio.gather(*(worker.stop(shutdown.STAGE) for worker in one_step))
        for worker in self._workers:
            await worker.stop()
        while await self.capture.writer.step():
            pass
        try:
            async with asyncio.timeout(shutdown.STAGE):
                while await self.capture.recorder.step():
                    pass
                await self.runs.shadow.drained()
                while await self.scorer.step():
                    pass
        except TimeoutError:
            _log.info("runs_left_for_the_next_start", runs=self.runs.shadow.active)
        await self.runs.shadow.stop()
        with suppress(SQLAlchemyError, OSError):  # the last commit must not fail for a count
            await self.token_days.step()
        if commits:
            await self.deliveries.triggers.last(shutdown.STAGE)

    async def stop(self) -> None:
        """End the work, unless that is done, and close."""
        self.deliveries.triggers.stop()
        self.context.timers.stop()
        async with AsyncExitStack() as closing:  # also when the store fails on the way
            closing.push_async_callback(self.context.tracer.aclose)
            closing.callback(self.chats.close)
            closing.callback(self.explorer.close)
            closing.callback(self.serving.close)
            closing.push_async_callback(asyncio.to_thread, self._isolation.close)
            for close in (
                self.deliveries.aclose,
                self.database.close,
                self.membership.stop,  # once nothing more is done in its name
                self._forgive,
                self._renewing.stop,
                self._rewards.aclose,
                self.rollouts.aclose,
                self.experiments.aclose,
                self.evaluations.aclose,
                self.notifier.aclose,
                self.runs.aclose,
            ):
                closing.push_async_callback(close)
            await self.end_work()

    async def facade_chat(
        self, tenant: str, dialect: Dialect, receive: Receive, send: Send, parent: TraceParent | None = None
    ) -> None:
        """Carry a chat of one of Trinity's own clients, which may have named a span of its own."""
        name = self.settings.explorer.served_model_name
        chat: Chat = FacadeChat(self.database, self.explorer, self.metrics, self._prompts, name, time.time, tenant)
        if dialect is not Dialect.CHAT:
            chat = TranslatedChat(chat, TRANSLATORS[dialect], unknown)
        asked = {
            **POLICY_CALL, Attribute.ASKED_BY: "facade", Attribute.REQUEST_MODEL: name,
            Attribute.DIALECT: dialect.value, Attribute.TENANT: tenant,
        }  # fmt: skip
        with self.context.tracer.span(SpanName.CHAT, asked, model=name, parent=parent):
            await self.chats.answer(chat, receive, send)

    async def policy_models(self, seconds: float) -> Whole:
        """The Explorer's list of models with the policy under its stable name.

        Raises:
            RequestError: 503, there is no answer within that time.
        """
        explorer = self.settings.explorer
        return renamed_models(await self.chats.get("/v1/models", seconds), explorer.served_model_name, explorer.model)

    def rescore(self) -> None:
        """There are answered runs to be scored."""
        self.context.stages.wake(Stage.SCORER)

    def take_up(self) -> None:
        """There may be anything to be done, of any stage."""
        self.capture.adopted()
        self.context.stages.wake(*RUNNERS, Stage.PLANNER, Stage.SCORER)

    def decide(self) -> None:
        """There are tasks to be decided."""
        self.context.stages.wake(Stage.PLANNER)

    @property
    def next_commit_at(self) -> float | None:
        """Return the time at which the commit timer runs out, in Unix seconds."""
        return self.deliveries.triggers.next_at

    async def refresh_gauges(self) -> None:
        """Bring the gauges that mirror the store up to date."""
        self.metrics.tasks.set(len(asyncio.all_tasks()))
        async with self.database.read() as session:
            self.metrics.runs_waiting.set(await runs.waiting(session))
            self.metrics.replays_open.set(await replays.open_now(session))
            for kind, rows in (await quarantine.count(session)).items():
                self.metrics.quarantined.labels(kind).set(rows)
            for version_state, rows in (await versions.count(session)).items():
                self.metrics.versions.labels(version_state).set(rows)
            self.metrics.experiences_ready.set(await ready_groups.ready_experiences(session))
            await self._refresh_verdicts(session)
            since = await evaluations.open_since(session)
        self.metrics.evaluation_open_seconds.set(0 if since is None else max(0.0, time.time() - since))
        await self.rollouts.refresh_gauges()
        await self.experiments.refresh_gauges()
        await self.notifier.refresh_gauges()
        for state, count in self.key_expiry.counts().items():
            self.metrics.keys.labels(state).set(count)
        self.metrics.runs_active.set(self.runs.shadow.active)
        self.metrics.capture_queue.set(self.waiting)
        self.outcomes.take_over()

    async def _refresh_verdicts(self, session: AsyncSession) -> None:
        lane = await self.versions.in_lane()
        places = {"explorer": self.watch.version, "lane": None if lane is None else lane.version}
        found = await self.verdicts.of(session, sorted({one for one in places.values() if one is not None}))
        for place, version in places.items():
            verdict = None if version is None else found[version]["verdict"]
            for each in Judgement:
                self.metrics.version_verdict.labels(place, each).set(each == verdict)

    @property
    def waiting(self) -> int:
        """Exchanges that are not stored yet, those in the proxy's workers included."""
        return self.counters.waiting + self.capture.waiting

    async def _forgive(self) -> None:
        """An orderly end is no death of what is left."""
        if self.started:
            async with self.database.write(alone=False) as session:
                await quarantine.forgive(session, self.membership.id)

    async def _registered(self, sidecar: int) -> None:
        await self.capture.registered(sidecar)
        self.runs.replays.registered()

    def _took_over(self, taken: TakenOver | None) -> None:
        self.take_up()
        self.metrics.runs.labels("failed").inc(taken.replays if taken else 0)
        if taken is None or taken.deliveries:
            self.deliveries.triggers.was_left()
