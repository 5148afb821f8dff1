"""One case asked once: of the version, with a look at the server's own counters before and after, or of production."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from slipstream.errors import AnswerLost, ExplorerAway, ExplorerError, ExplorerRefused, ExplorerUnavailable
from slipstream.evaluation.cases import AskedCase
from slipstream.evaluation.completions import ModelAway, production_asker
from slipstream.evaluation.scoring import CaseScorer, from_call, message_call, run_of
from slipstream.evaluation.servers import Server, VersionUnsure, answer_of, serves
from slipstream.explorer.client import case_request
from slipstream.memory.parsing import Share
from slipstream.stages.context import Context
from slipstream.store import heldout, read_models
from slipstream.store.evaluations import Answer, Arm, Evaluation, Key, Outcome
from slipstream.trajectory import PolicyCall, Task
from slipstream.usage import OF_ALL, Kind

_log = structlog.get_logger(__name__)


class _Gone(Exception):
    """The held-out call cannot be read: it was deleted, or is another case by now, or is too large."""


@dataclass(frozen=True)
class Work:
    """An evaluation that is carried out.

    Attributes:
        cases: what is asked, by the position of each case.
        server: that serves the version.
    """

    evaluation: Evaluation
    cases: Sequence[AskedCase]
    scorer: CaseScorer
    server: Server


class CaseAsker:
    """Asks cases and has the answers scored. Nothing of it is delivered to the Explorer as a reward."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._production = production_asker(context.settings, context.settings.evaluation.concurrency)
        self._tries: Counter[tuple[int, Key]] = Counter()

    async def aclose(self) -> None:
        """Close the connections to production."""
        await self._production.aclose()

    def forget(self) -> None:
        """Forget the tries of an evaluation that has ended."""
        self._tries.clear()

    async def answer(self, work: Work, key: Key) -> Answer | None:
        """The value of one answer; None if its server was not there to give it, which is tried again.

        Raises:
            VersionChanged: its server serves another version by now.
        """
        try:
            if key.arm is Arm.VERSION:
                return await self._of_version(work, key)
            return await self._of_production(work, work.cases[key.position])
        except VersionUnsure:
            return None
        except _Gone:
            return Answer(Outcome.GONE, None, {}, None)

    async def _of_production(self, work: Work, case: AskedCase) -> Answer:
        if case.call is not None:
            async with self._task(case) as task:
                assert task is not None, "a held-out call has a task"
                stored = task.calls[0]
                answered = message_call(stored.request, stored.answer, stored.latency)
                return await work.scorer.score(run_of(work.evaluation.id, case, task, answered))
        asked = {**case.request, **work.evaluation.settings["parameters"]}
        try:
            answered = await self._production.ask(asked, work.evaluation.settings["production"])
        except ModelAway as error:
            _log.warning("evaluation_production_away", evaluation=work.evaluation.id, reason=str(error))
            return Answer(Outcome.AWAY, None, {}, None)
        self._context.metrics.tokens.used(Kind.EVALUATION_PRODUCTION, OF_ALL, answered.answer)
        return await work.scorer.score(run_of(work.evaluation.id, case, None, answered))

    async def _of_version(self, work: Work, key: Key) -> Answer | None:
        case, version, server = work.cases[key.position], work.evaluation.version, work.server
        try:
            model = await server.model()
        except ExplorerError:
            return None
        async with self._task(case) as task:
            content = json.dumps(_asked(work, case, task, model)).encode()
        try:
            async with answer_of(server, version, content) as (answer, latency):
                self._context.metrics.tokens.used(Kind.EVALUATION, OF_ALL, answer)
                async with self._task(case) as task:
                    answered = PolicyCall(
                        _asked(work, case, task, model), answer, answer["id"], latency, work.evaluation.version
                    )
                    return await work.scorer.score(run_of(work.evaluation.id, case, task, answered))
        except ExplorerRefused as error:
            return self._failed(work, case, error)
        except ExplorerAway:
            return None
        except (AnswerLost, ExplorerUnavailable) as error:
            await serves(server, version)  # one that loads another version breaks answers off
            self._tries[work.evaluation.id, key] += 1
            if self._tries[work.evaluation.id, key] < self._context.settings.runs.max_attempts:
                return None
            return self._failed(work, case, error)

    def _failed(self, work: Work, case: AskedCase, error: ExplorerError) -> Answer:
        _log.info("evaluation_case_failed", evaluation=work.evaluation.id, case=case.name, reason=str(error))
        return Answer(Outcome.FAILED, work.scorer.lowest, {}, None)

    @asynccontextmanager
    async def _task(self, case: AskedCase) -> AsyncIterator[Task | None]:
        """The task of a held-out call from that call on, in memory that is reserved for it; None for a case of a
        file.

        Raises:
            _Gone: it was deleted, or is another case by now, or is too large.
        """
        if case.call is None:
            yield None
            return
        database, parsing = self._context.database, self._context.parsing
        async with database.read() as session:
            place = await heldout.task_of(session, case.call)
            size = 0 if place is None else (await read_models.sizes(session, [place[0]]))[place[0]]
        if place is None or size > parsing.room(Share.JUDGED):
            raise _Gone
        async with parsing.held(size, Share.JUDGED):
            async with database.read() as session:
                found = (await read_models.tasks(session, [place[0]])).get(place[0])
            task = None if found is None else from_call(found, place[1])
            if task is None or case.key != heldout.key_of(case.call, place[0], task.calls[0].started_at, task.metadata):
                raise _Gone
            yield task


def _asked(work: Work, case: AskedCase, task: Task | None, model: str) -> dict[str, Any]:
    request: Mapping[str, Any] = case.request if task is None else task.calls[0].request
    return case_request({**request, **work.evaluation.settings["parameters"]}, model)
