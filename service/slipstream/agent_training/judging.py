"""A language model as the judge of answers, outside of the sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from slipstream.rewards.calculator import Reward
from slipstream.rewards.calculators.judge import Judge, JudgeCalculator
from slipstream.trajectory import PolicyCall, Run, Task


class LLMJudge:
    """Judges answers by the `judge` calculator of the sidecar.

    Args:
        model: its name at the server.
        base_url: of a server of OpenAI's API, such as `https://api.openai.com/v1`.
        criteria: a question for each; by default relevance, accuracy and completeness.
        api_key: for the server.

    Raises:
        ValueError: an argument cannot be used.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        criteria: Mapping[str, str] | None = None,
        api_key: str | None = None,
    ) -> None:
        given = {"model": model, "base_url": base_url, "criteria": criteria, "api_key": api_key}
        self._parameters = Judge.model_validate({name: value for name, value in given.items() if value is not None})

    def evaluate(self, user_input: str, agent_response: str) -> dict[str, float]:
        """Judge an answer.

        Returns:
            Each criterion from 1 to 5, `total`, their mean, and `reward`, the same from 0 to 1. A fifth of the total
            would give the worst answer 0.2.

        Raises:
            ScoringError: the judge gave no usable verdict.
        """
        reward = asyncio.run(self.reward(user_input, agent_response))
        scores = {name: 1 + 4 * (value or 0.0) for name, value in reward.breakdown.items()}
        return {**scores, "total": 1 + 4 * reward.value, "reward": reward.value}

    async def reward(self, user_input: str, agent_response: str) -> Reward:
        """Judge an answer, in a program that is asynchronous.

        Raises:
            ScoringError: the judge gave no usable verdict.
        """
        message = {"role": "assistant", "content": agent_response}
        request = {"messages": [{"role": "user", "content": user_input}]}
        call = PolicyCall(request, {"choices": [{"message": message}]}, "")
        run = Run(Task("judged", "judged", ()), "judged", 0, (call,), kind="agent_replay")
        calculator = JudgeCalculator(self._parameters)
        try:
            return await calculator.calculate(run)
        finally:
            await calculator.aclose()
