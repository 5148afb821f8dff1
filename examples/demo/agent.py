"""The demo's agent: it answers arithmetic questions with the help of a calculator.

An ordinary agent on the openai SDK. Slipstream asks nothing of it but the `base_url`; the headers only say which of
its calls are to be learnt from and what the right answer is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from calculator import TOOL, Reply, reply_to_user
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageFunctionToolCall

# One example of a call. It stands as text because OpenAI's API takes no call without its result, and because a small
# model that sees a result in its prompt goes on to write results.
_CALL = {"name": "calculator", "arguments": {"expression": "40 - 8 + 31"}}
_EXAMPLE: list[Any] = [
    {"role": "user", "content": "State the final answer to the following arithmetic problem: 40 - 8 + 31 ="},
    {"role": "assistant", "content": f"<tool_call>\n{json.dumps(_CALL)}\n</tool_call>"},
]
_MAX_TOKENS = 48  # a call of three numbers takes 40


class Agent:
    """Answers questions with the model behind `base_url`."""

    def __init__(self, base_url: str, model: str) -> None:
        self._client = AsyncOpenAI(base_url=base_url, api_key="not-needed", timeout=1800)
        self._model = model
        self.calls = 0

    async def answer(self, question: str, headers: Mapping[str, str] | None = None) -> Reply:
        """One call to the model; what the calculator returns is the answer, without another call to phrase it."""
        reply, _ = await self.ask(question, headers)
        return reply

    async def ask(self, question: str, headers: Mapping[str, str] | None = None) -> tuple[Reply, str | None]:
        """The answer, and who gave it: `production` or `version:N`, if a header asked the sidecar to say so."""
        self.calls += 1
        answer = await self._client.chat.completions.with_raw_response.create(
            model=self._model,
            messages=[*_EXAMPLE, {"role": "user", "content": question}],
            tools=[TOOL],  # type: ignore[list-item]
            max_tokens=_MAX_TOKENS,
            extra_headers=dict(headers or {}),
        )
        message = answer.parse().choices[0].message
        calls = [
            call.model_dump()
            for call in message.tool_calls or []
            if isinstance(call, ChatCompletionMessageFunctionToolCall)
        ]
        return reply_to_user(message.content or "", calls), answer.headers.get("x-slipstream-variant")

    async def close(self) -> None:
        await self._client.close()
