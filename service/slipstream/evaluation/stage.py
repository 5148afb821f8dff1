"""The stage that carries out evaluations, one after the other: one sidecar of those that share the store for each.

An evaluation is claimed, its cases are fixed, and answers are asked for a few at a time, each stored when it is there.
So after a crash, at any point, the missing answers are asked for and no other. It ends without a result if its version
is not served any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog

from slipstream.errors import ExplorerError, SlipstreamError
from slipstream.evaluation import plans
from slipstream.evaluation.asking import CaseAsker, Work
from slipstream.evaluation.results import result_of
from slipstream.evaluation.scoring import CaseScorer, digest_of
from slipstream.evaluation.servers import PolicyServers, Served, VersionChanged
from slipstream.isolation import Isolation
from slipstream.runs.budget import Budget
from slipstream.settings.evaluation import Suite
from slipstream.stages.context import Context, Stage
from slipstream.store import evaluations, sidecars, versions
from slipstream.store.evaluations import Answer, Arm, Evaluation, Key, Outcome
from slipstream.store.states import EvaluationState
from slipstream.tracing.catalogue import Attribute, SpanName
from slipstream.tracing.tracer import Past

_log = structlog.get_logger(__name__)

_LOOK = 2.0
"""Seconds between two looks at the Explorer's version, where suites follow it."""

_USELESS = 0.5
"""Part of an arm's answers from which on nothing is said about it, if so many could not be scored."""


class Evaluations:
    """Carries out evaluations.

    Args:
        judging: the budget of calls of judges, which the training's scores share.

    Attributes:
        budget: calls of models.
        waits: why the open evaluation does not go on; None if it does, or there is none.
        worker: the loop.
    """

    def __init__(self, context: Context, isolation: Isolation, judging: Budget, servers: PolicyServers) -> None:
        self._context = context
        self._database = context.database
        self._isolation = isolation
        self._judging = judging
        self._servers = servers
        self._settings = context.settings.evaluation
        self._asker = CaseAsker(context)
        self._work: Work | None = None
        self._scorer: CaseScorer | None = None
        self._looked_at: int | None = None
        self._due: set[str] = set()
        self.waits: str | None = None
        limit = self._settings.calls_per_hour if self._settings.suites else None
        self.budget = Budget(context.database, context.metrics, "evaluation", requests=limit, clock=context.clock)
        for suite in self._settings.suites:
            if suite.schedule is not None:
                context.timers.cron(suite.schedule, suite.timezone, partial(self._is_due, suite.name))
        follows = any(suite.every is not None for suite in self._settings.suites)
        self.worker = context.stages.add(Stage.EVALUATION, self.step, _LOOK if follows else None)

    async def aclose(self) -> None:
        """Close the calculators and the connections."""
        self._servers.close()
        await self._asker.aclose()
        await self._forget()

    async def served(self, version: int) -> Served:
        """Look for the server of a version."""
        async with self._database.read() as session:
            replaced = await versions.replaced(session, version)
        return await self._servers.served(version, only_lane=replaced)

    async def current(self) -> int | None:
        """Return the version that the Explorer serves now. Raises ExplorerError."""
        return await self._servers.current()

    async def step(self) -> bool:
        """Open what is due, and ask the next cases of the open evaluation. Returns True when more are to be asked."""
        await self._open_due()
        async with self._database.read() as session:
            if not await evaluations.open_now(session):
                self.waits = None
                return False
        async with self._database.write() as session:
            mine = self._context.membership.id
            await sidecars.hold(session, mine)
            found = await evaluations.claim(session, mine)
        if found is None:  # another sidecar carries it out
            self.waits = None
            return False
        return await self._go_on(found)

    def _is_due(self, suite: str) -> None:
        self._due.add(suite)
        self._context.stages.wake(Stage.EVALUATION)

    async def _open_due(self) -> None:
        """Open the evaluations of the version that the Explorer serves now: of suites whose time has come, and of those
        for each so many versions, when it is another version than at the last look."""
        follow = [suite for suite in self._settings.suites if suite.every is not None]
        if not (follow or self._due):
            return
        try:
            version = await self._servers.current()
        except ExplorerError:
            return
        if version is None or (version == self._looked_at and not self._due):
            return
        due, now = set(self._due), self._context.clock()
        async with self._database.write() as session:
            if version not in await versions.known(session):
                return  # the watch notes it in a moment
            for suite in self._settings.suites:
                if await evaluations.evaluated(session, version, suite.name):
                    continue
                if suite.name in due:
                    await evaluations.open_(session, version, suite.name, "schedule", None, now)
                elif suite.every is not None and version != self._looked_at:
                    since = await evaluations.versions_since(session, suite.name)
                    if since is None or since >= suite.every:
                        await evaluations.open_(session, version, suite.name, "every", None, now)
        self._looked_at = version
        self._due -= due

    async def _go_on(self, evaluation: Evaluation) -> bool:
        suite = self._settings.suite(evaluation.suite)
        if suite is None:
            await self._end(evaluation, EvaluationState.FAILED, f"evaluation.suites has no {evaluation.suite} any more")
            return True
        served = await self.served(evaluation.version)
        if served.server is None:
            self.waits = served.told
            if served.sure:
                await self._end(evaluation, EvaluationState.CHANGED, f"version {evaluation.version}: {served.told}")
            return served.sure
        self.waits = None
        work = self._work
        if work is None or work.evaluation.id != evaluation.id or work.server is not served.server:
            try:
                work = await self._begun(evaluation, suite, served)
            except (SlipstreamError, OSError) as error:
                await self._end(evaluation, EvaluationState.FAILED, str(error))
                return True
        return await self._ask(work)

    async def _begun(self, evaluation: Evaluation, suite: Suite, served: Served) -> Work:
        """The evaluation with its cases, begun or taken up again.

        Raises:
            CasesError, NothingToEvaluate, ConfigError: it cannot be carried out.
        """
        assert served.server is not None, "its version is served"
        await self._forget()
        rewards = self._context.settings.rewards
        if evaluation.state is EvaluationState.PENDING:
            cases = await plans.cases_of(suite, self._database, rewards, self._context.settings.datasets.held_out)
            chosen = plans.rewards_of(rewards, cases)
            scorer = CaseScorer(chosen, self._context.metrics, self._isolation)
            settings = self._described(suite, scorer)
            async with self._database.write() as session:
                await sidecars.hold(session, self._context.membership.id)
                evaluation = await evaluations.begin(
                    session, evaluation.id, plans.rows_of(cases), settings, served.server.name, self._context.clock()
                )
            _log.info("evaluation_begun", evaluation=evaluation.id, version=evaluation.version, suite=suite.name)
        else:
            async with self._database.read() as session:
                rows = await evaluations.cases(session, evaluation.id)
            cases = await plans.again(suite, rows)
            scorer = CaseScorer(plans.rewards_of(rewards, cases), self._context.metrics, self._isolation)
            if digest_of(scorer.rewards) != evaluation.settings["calculators"]["digest"]:
                await scorer.aclose()
                raise plans.NothingToEvaluate("rewards.calculators: they changed since the evaluation began")
        self._scorer = scorer
        self._work = Work(evaluation, cases, scorer, served.server)
        return self._work

    def _described(self, suite: Suite, scorer: CaseScorer) -> dict[str, Any]:
        names = [spec.component for spec in scorer.rewards.calculators]
        production = suite.production if suite.cases is not None else plans.STORED
        return {
            "repeat": suite.repeat,
            "threshold": suite.threshold,
            "parameters": suite.parameters,
            "production": production,
            "margin": self._settings.margin,
            "level": self._settings.level / len(self._settings.suites),
            "clip": list(scorer.rewards.clip),
            "calculators": {"names": names, "digest": digest_of(scorer.rewards)},
        }

    async def _ask(self, work: Work) -> bool:
        """Ask a few of the answers that are missing. Returns True when more are to be asked at once."""
        async with self._database.read() as session:
            there = await evaluations.answers(session, work.evaluation.id)
        missing = [key for key in _keys(work) if key not in there]
        if not missing:
            await self._finish(work)
            return True
        taken = await self._affordable(work, missing[: self._settings.concurrency])
        if not taken:
            self.waits = "the budget of the hour is spent"
            return False
        found = await asyncio.gather(*(self._asker.answer(work, key) for key in taken), return_exceptions=True)
        answers = {key: answer for key, answer in zip(taken, found, strict=True) if isinstance(answer, Answer)}
        async with self._database.write() as session:
            await sidecars.hold(session, self._context.membership.id)
            await evaluations.save(session, work.evaluation.id, answers)
        for answer in answers.values():
            self._context.metrics.evaluation_answers.labels(answer.outcome).inc()
        for error in found:
            if isinstance(error, VersionChanged):
                reason = f"version {work.evaluation.version} was not served any more while it was asked"
                await self._end(work.evaluation, EvaluationState.CHANGED, reason)
                return True
            if isinstance(error, BaseException):
                raise error
        if len(answers) < len(taken):
            self.waits = "its server is away"
        return len(answers) == len(taken)

    async def _affordable(self, work: Work, wanted: Sequence[Key]) -> Sequence[Key]:
        """The answers for which there is room in the budgets of the hour, which they spend."""
        judges, now = work.scorer.judges, self._context.clock()
        calls = [_calls(work, key) for key in wanted]
        limited = self.budget.limited or (judges and self._judging.limited)
        if not limited:
            return wanted
        async with self._database.write() as session:
            room = await self.budget.room(session, sum(calls), now)
            taken: list[Key] = []
            for key, cost in zip(wanted, calls, strict=True):
                if cost > room:
                    break
                if judges and await self._judging.room(session, judges, now) < judges:
                    break
                room -= cost
                taken.append(key)
                if judges:
                    await self._judging.spend(session, judges, 0, now)
            await self.budget.spend(session, sum(_calls(work, key) for key in taken), 0, now)
        return taken

    async def _finish(self, work: Work) -> None:
        async with self._database.read() as session:
            rows = await evaluations.cases(session, work.evaluation.id)
            answers = await evaluations.answers(session, work.evaluation.id)
        if reason := _useless(answers):
            await self._end(work.evaluation, EvaluationState.FAILED, reason)
            return
        await self._end(work.evaluation, EvaluationState.DONE, result=result_of(work.evaluation, rows, answers))

    async def _end(
        self,
        evaluation: Evaluation,
        state: EvaluationState,
        reason: str | None = None,
        result: dict[str, Any] | None = None,
    ) -> None:
        now = self._context.clock()
        async with self._database.write() as session:
            await sidecars.hold(session, self._context.membership.id)
            await evaluations.end(session, evaluation.id, state, now, reason=reason, result=result)
            if result is not None and result["against_production"] is not None:
                await versions.note_tested(session, evaluation.version, now)
        await self._forget()
        self.waits = None
        self._context.metrics.evaluations.labels(state).inc()
        self._context.tracer.past(_span_of(evaluation, state, now))
        log = _log.info if state is EvaluationState.DONE else _log.warning
        log(
            "evaluation_ended", evaluation=evaluation.id, version=evaluation.version, suite=evaluation.suite,
            state=state, reason=reason,
        )  # fmt: skip

    async def _forget(self) -> None:
        self._work = None
        self._asker.forget()
        if self._scorer is not None:
            await self._scorer.aclose()
            self._scorer = None


def _span_of(evaluation: Evaluation, state: EvaluationState, now: float) -> Past:
    """The span of an evaluation that ended, from when its cases were fixed."""
    return Past(
        SpanName.EVALUATION,
        evaluation.begun_at or now,
        now,
        {
            Attribute.EVALUATION: evaluation.id,
            Attribute.VERSION: evaluation.version,
            Attribute.SUITE: evaluation.suite,
            Attribute.TRIGGER: evaluation.trigger,
            Attribute.STATE: state.value,
        },
        error=None if state is EvaluationState.DONE else state.value,
    )


def _keys(work: Work) -> list[Key]:
    """The answers of an evaluation, in the order in which they are asked for: the arms of a case side by side."""
    settings = work.evaluation.settings
    found = []
    for position, case in enumerate(work.cases):
        found += [Key(position, Arm.VERSION, repeat) for repeat in range(settings["repeat"])]
        if settings["production"] is not None:
            times = 1 if case.call is not None else settings["repeat"]
            found += [Key(position, Arm.PRODUCTION, repeat) for repeat in range(times)]
    return found


def _calls(work: Work, key: Key) -> int:
    """Return the calls of a model that an answer takes: none for production's stored one."""
    return 0 if key.arm is Arm.PRODUCTION and work.cases[key.position].call is not None else 1


def _useless(answers: dict[Key, Answer]) -> str | None:
    """Return why nothing can be said by these answers, in words; None if something can."""
    for arm in Arm:
        mine = [answer.outcome for key, answer in answers.items() if key.arm is arm]
        for outcomes, most, why in (
            ((Outcome.FAILED,), 1.0, "the version refused or broke off"),
            ((Outcome.UNSCORED,), _USELESS, "the calculators failed on"),
            ((Outcome.NO_BASIS, Outcome.GONE), _USELESS, "there was nothing to score by in"),
            ((Outcome.AWAY,), _USELESS, "production did not give"),
        ):
            found = sum(outcome in outcomes for outcome in mine)
            if mine and found and found >= most * len(mine):
                return f"{why} {found} of {len(mine)} answers of the arm {arm}"
    return None
