"""The `webhook` calculator: another service gives the reward."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, SecretStr, TypeAdapter

from slipstream.rewards.calculator import Number, Reward
from slipstream.rewards.endpoint import Endpoint, EndpointParameters, HttpUrl
from slipstream.trajectory import Run

_RUN = TypeAdapter(Run)


class Webhook(EndpointParameters):
    """Posts the run as JSON to `url`, which answers `{"reward": 0.5, "breakdown": {"part": 0.5}}`."""

    url: HttpUrl
    headers: dict[str, SecretStr] = Field(default_factory=dict)

    def build(self) -> WebhookCalculator:
        return WebhookCalculator(self)


class _Answer(BaseModel):
    reward: Annotated[Number, Field(strict=True)]
    breakdown: dict[str, Annotated[Number, Field(strict=True)] | None] = Field(default_factory=dict)


class WebhookCalculator:
    def __init__(self, parameters: Webhook) -> None:
        headers = {name: value.get_secret_value() for name, value in parameters.headers.items()}
        self._endpoint = Endpoint(parameters.url, headers, parameters)

    async def calculate(self, run: Run) -> Reward:
        return await self._endpoint.ask(run_json(run), _reward)

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def run_json(run: Run) -> bytes:
    """The run as `slipstream.trajectory.Run` describes it, field by field, as a JSON object."""
    return _RUN.dump_json(run)


def _reward(answer: Any) -> Reward:
    checked = _Answer.model_validate(answer)
    return Reward(checked.reward, checked.breakdown)
