"""The `webhook` calculator: another service gives the reward."""

from __future__ import annotations

import hashlib
import json
import time
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, Field, SecretStr, TypeAdapter

from slipstream.isolation import Isolation
from slipstream.rewards.calculator import Number, Reward
from slipstream.rewards.endpoint import Endpoint, EndpointParameters, HttpUrl
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run
from slipstream.webhooks.outgoing import AllowPrivate
from slipstream.webhooks.signature import SigningSecret, signed, signing_key

_RUN = TypeAdapter(Run)


@calculator("webhook")
class Webhook(EndpointParameters):
    """Posts the run as JSON to `url`, which answers `{"reward": 0.5, "breakdown": {"part": 0.5}}`.

    Attributes:
        secret: what requests are signed with, as `signature` says; None leaves them unsigned.
    """

    url: HttpUrl
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    secret: SigningSecret | None = None
    allow_private: AllowPrivate = False

    def build(self, isolation: Isolation) -> WebhookCalculator:
        return WebhookCalculator(self)


class _Answer(BaseModel):
    reward: Annotated[Number, Field(strict=True)]
    breakdown: dict[str, Annotated[Number, Field(strict=True)] | None] = Field(default_factory=dict)


class WebhookCalculator:
    def __init__(self, parameters: Webhook) -> None:
        headers = {name: value.get_secret_value() for name, value in parameters.headers.items()}
        secret = parameters.secret
        sign = None if secret is None else partial(_signature, signing_key(secret.get_secret_value()))
        self._endpoint = Endpoint(
            parameters.url, headers, parameters, sign=sign, allow_private=parameters.allow_private
        )

    async def calculate(self, run: Run) -> Reward:
        return await self._endpoint.ask(run_json(run), _reward)

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def _signature(key: bytes, body: bytes) -> dict[str, str]:
    """Named by what is asked, so that each try to ask it has the same name."""
    name = hashlib.blake2b(body, digest_size=16).hexdigest()
    return signed(key, f"reward_{name}", int(time.time()), body)


def run_json(run: Run) -> bytes:
    """The run as `slipstream.trajectory.Run` describes it, field by field, as a JSON object."""
    return json.dumps(_RUN.dump_python(run, mode="json")).encode()  # in ASCII: texts hold lone surrogates too


def _reward(answer: Any) -> Reward:
    checked = _Answer.model_validate(answer)
    return Reward(checked.reward, checked.breakdown)
