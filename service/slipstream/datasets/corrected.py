"""Rows of data sets of corrections: answers that users said in words were not right.

A correction is believed for what is stored: the answer before it must be one that the sidecar captured in the same
session. What an agent sends as history alone teaches nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from slipstream.datasets.config import Corrections, Dataset
from slipstream.datasets.correction_judge import CorrectionJudge
from slipstream.datasets.corrections import detect, refused
from slipstream.datasets.exchange import Unfit, exchange, says_the_same
from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.datasets.sources import Block, Dropped, said
from slipstream.store import training_answers as stored
from slipstream.store.database import Database
from slipstream.store.training_answers import ProductionAnswer
from slipstream.trajectory import Message, message_text

_PAGE = 200
"""Answers that are in memory at once."""

_BEFORE = 8
"""Answers of a session among which the corrected one is looked for: others may lie between, of agents at work."""

_ASKED = 0.1
"""Least score of a message that the judge is asked about: it has no strong sign against a correction."""


class CorrectionSources:
    """Reads the corrections of a data set.

    Args:
        judge: None if the detector decides alone.
        middle: of the range of rewards; feedback below it is disliking.
    """

    def __init__(self, database: Database, dataset: Dataset, judge: CorrectionJudge | None, middle: float) -> None:
        assert dataset.corrections is not None, "of a data set of corrections"
        self._database = database
        self._tenants = dataset.tenants
        self._wanted: Corrections = dataset.corrections
        self._judge = judge
        self._middle = middle
        self._of_session: Counter[str] = Counter()

    async def blocks(self) -> list[Block]:
        """All that is to be read: one block, because a session's corrections are counted."""
        async with self._database.read() as session:
            return [Block(0, *span) for span in await stored.spans_of_calls(session, sys.maxsize)]

    async def rows(self, block: Block) -> AsyncIterator[Row | Dropped]:
        """Read all answers, with what was said about them."""
        after = block.after
        while True:
            async with self._database.read() as session:
                page = await stored.given_answers(session, after, block.up_to, _PAGE, self._tenants)
            for found in page:
                if "next_message" in self._wanted.from_ and (row := await self._in_its_request(found)) is not None:
                    yield row
                if "comment" in self._wanted.from_ and (row := self._in_its_feedback(found)) is not None:
                    yield row
            if len(page) < _PAGE:
                return
            after = page[-1].pk

    async def _in_its_request(self, found: ProductionAnswer) -> Row | Dropped | None:
        """The correction that a call's request ends with; None if it does not end with an answer and a message."""
        messages = found.call.messages
        if [message.get("role") for message in messages[-2:]] != ["assistant", "user"]:
            return None
        words, answer = message_text(messages[-1]), messages[-2]
        if why := await self._no_correction(found.task.tenant, messages, answer, words) or refused(words):
            return Dropped(why)
        async with self._database.read() as session:
            before = await stored.answers_before(session, found.task.session_ref, found.pk, _BEFORE)
        corrected = next((each for each in before if _is_before(each, messages)), None)
        if corrected is None:
            return Dropped("corrected answer is not stored")
        return self._row(corrected, words, Source.NEXT_MESSAGE, found)

    async def _no_correction(self, tenant: str, messages: Sequence[Message], answer: Message, words: str) -> str | None:
        score = detect(words, message_text(answer)).score
        if self._judge is None or score < _ASKED:
            return None if score >= self._wanted.min_score else "next message is no correction"
        verdict = await self._judge.corrects(tenant, messages, answer)
        if verdict is None:
            return "judge gave no verdict"
        return None if verdict else "next message is no correction"

    def _in_its_feedback(self, found: ProductionAnswer) -> Row | Dropped | None:
        """The newest comment about an answer that speaks against it; None if there is none."""
        for feedback in reversed(found.feedback):
            words = (feedback.comment or "").strip()
            if not words:
                continue
            if feedback.reward is None:
                against = detect(words, message_text(found.call.message)).score >= self._wanted.min_score
            else:
                against = feedback.reward < self._middle
            if against:
                return Dropped(why) if (why := refused(words)) else self._row(found, words, Source.COMMENT, found)
        return None

    def _row(self, corrected: ProductionAnswer, words: str, source: Source, said_in: ProductionAnswer) -> Row | Dropped:
        task, call = corrected.task, corrected.call
        by = "policy" if call.by_policy else "production"
        if by not in self._wanted.answers_of:
            return Dropped(f"answer of {by}")
        if call.problem is not None:
            return Dropped(f"policy cannot be asked: {call.problem}")
        try:
            made = exchange(call.request, call.answer, thoughts=call.by_policy)
        except Unfit as unfit:
            return Dropped(str(unfit))
        if self._of_session[task.session_ref] >= self._wanted.per_session:
            return Dropped("more than per_session")
        self._of_session[task.session_ref] += 1
        provenance = Provenance(
            task=task.ref,
            session=task.session_ref,
            tenant=task.tenant,
            source=source,
            msg_ids=(call.msg_id,) if call.msg_id else (),
            models=((call.variant if call.by_policy else call.model) or "unknown",),
            rewards=(None,),
            feedback=(said(corrected.feedback),),
            labels=task.labels,
            created_at=call.started_at,
            said_in=None if said_in.task.ref == task.ref else said_in.task.ref,
        )
        return Row(Kind.CORRECTION, made.prompt, made.answer, provenance, made.tools, correction=words.strip())


def _is_before(answered: ProductionAnswer, messages: Sequence[Message]) -> bool:
    """Return whether a call is the one that was corrected: it asked the same last, and got the same answer.

    More is not compared: agents shorten what lies further back, and put the time into instructions.
    """
    asked = answered.call.messages
    return (
        len(messages) > 2
        and bool(asked)
        and asked[-1].get("role") == messages[-3].get("role")
        and message_text(asked[-1]) == message_text(messages[-3])
        and says_the_same(answered.call.message, messages[-2])
    )
