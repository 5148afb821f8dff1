"""Chat completions of any server that speaks OpenAI's API, asked a bounded number at a time and tried again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from slipstream.errors import ScoringError
from slipstream.evaluation.scoring import message_call
from slipstream.explorer.client import case_request
from slipstream.isolation import Isolation
from slipstream.rewards.calculator import BuiltCalculator
from slipstream.rewards.endpoint import Endpoint, EndpointParameters
from slipstream.settings.sidecar import Settings
from slipstream.trajectory import PolicyCall


class ModelAway(Exception):
    """The model gave no answer that can be scored; says why."""


class _Asked(EndpointParameters):
    """Parameters of questions to a model, like those of a calculator that asks a service."""

    def build(self, isolation: Isolation) -> BuiltCalculator:
        raise NotImplementedError("a model is no calculator")


class CompletionsAsker:
    """Asks one server for chat completions.

    Args:
        base_url: with its `/v1`.
        secret: sent as the bearer token; empty for none.
        settings: `runs` has the time limit and the tries of an answer.
        concurrency: answers that are asked for at the same time.
    """

    def __init__(self, base_url: str, secret: str, settings: Settings, concurrency: int) -> None:
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        parameters = _Asked(timeout=settings.runs.timeout, attempts=settings.runs.max_attempts, concurrency=concurrency)
        self._endpoint = Endpoint(f"{base_url}/chat/completions", headers, parameters)

    async def ask(self, request: Mapping[str, Any], model: str) -> PolicyCall:
        """Ask once.

        Raises:
            ModelAway: there is no answer.
        """
        asked = case_request(request, model)
        started = time.monotonic()
        try:
            answer = await self._endpoint.ask(json.dumps(asked).encode(), _read)
        except ScoringError as error:
            raise ModelAway(str(error)) from error
        return message_call(asked, answer, time.monotonic() - started)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()


def production_asker(settings: Settings, concurrency: int) -> CompletionsAsker:
    """Return the asker of production, with `production.api_key`."""
    key = settings.production.api_key
    return CompletionsAsker(
        settings.production.base_url, "" if key is None else key.get_secret_value(), settings, concurrency
    )


def _read(answer: Any) -> dict[str, Any]:
    """The answer. Raises ValueError for one that is no chat completion."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if message is None:
        raise ValueError("no chat completion with a message")
    return dict(answer)
