"""A language model that decides what a user's next message is, asked by the `judge` calculator."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.errors import ScoringError
from slipstream.rewards.calculators.judge import Judge, JudgeCalculator
from slipstream.trajectory import Call, Message, PolicyCall, Run, Task

_CRITERIA = {
    "correction": "Does the last message of the conversation say that the answer to judge was wrong, or was not what "
    "had been asked for? 5: it does. 1: it is a new request, a question, an addition, thanks, or a reply to a question."
}
_LEAST = 0.75
"""A verdict of 4 of 5."""


class CorrectionJudge:
    """Decides whether a message corrects an answer.

    Args:
        judge: the sidecar's; its endpoint, model and retries are used, and not its criteria.
    """

    def __init__(self, judge: Judge) -> None:
        update = {"criteria": _CRITERIA, "instructions": "", "show_production": False}
        self._judge = JudgeCalculator(judge.model_copy(update=update))

    async def corrects(self, tenant: str, conversation: Sequence[Message], answer: Message) -> bool | None:
        """Return whether the last message of a conversation corrects the answer; None if the judge gave no verdict.

        Args:
            conversation: ends with the answer and the user's next message.
        """
        request = {"messages": list(conversation)}
        call = Call("correction", 0, request, {})
        task = Task("correction", "correction", (call,), tenant=tenant)
        answered = PolicyCall(request, {"choices": [{"message": dict(answer)}]}, "")
        try:
            verdict = await self._judge.calculate(Run(task, "correction", 0, (answered,), call))
        except ScoringError:
            return None
        return verdict.value >= _LEAST

    async def aclose(self) -> None:
        """Close the connection to the judge."""
        await self._judge.aclose()
