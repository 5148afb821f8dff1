"""Names of spans and of their attributes: `docs/tracing.md` lists them, which a test compares with this.

What OpenTelemetry's conventions have a name for has that name: those of generative AI (`gen_ai.*`), of errors, of
servers and of HTTP. The others begin with `slipstream.`. None of them holds a text that a user or a model wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

Value = str | bool | int | float | Sequence[str]

Attributes = Mapping["Attribute", "Value | None"]
"""An attribute whose value is None is left out."""


class SpanName(StrEnum):
    """Names of spans."""

    CHAT = "chat"
    """A call of a model, and behind it the model's name."""
    SCORE = "score run"
    COMMIT = "commit"
    FEEDBACK = "feed back group"
    EVALUATION = "evaluate version"
    ROLLOUT = "decide rollout"


class Attribute(StrEnum):
    """Names of attributes."""

    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    RESPONSE_MODEL = "gen_ai.response.model"
    RESPONSE_ID = "gen_ai.response.id"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    CONVERSATION = "gen_ai.conversation.id"
    SERVER_ADDRESS = "server.address"
    SERVER_PORT = "server.port"
    STATUS = "http.response.status_code"
    ERROR = "error.type"
    ASKED_BY = "slipstream.asked_by"
    DIALECT = "slipstream.dialect"
    ANSWERED_BY = "slipstream.answered_by"
    CAPTURED = "slipstream.captured"
    TENANT = "slipstream.tenant"
    TASK = "slipstream.task_id"
    GROUP = "slipstream.group_id"
    RUN = "slipstream.run_id"
    MSG = "slipstream.msg_id"
    ATTEMPT = "slipstream.attempt"
    VERSION = "slipstream.policy_version"
    REWARD = "slipstream.reward"
    COMMIT = "slipstream.commit"
    TRIGGER = "slipstream.trigger"
    GROUPS = "slipstream.groups"
    EXPERIENCES = "slipstream.experiences"
    ROLLOUT = "slipstream.rollout"
    VERDICT = "slipstream.verdict"
    STATE = "slipstream.state"
    SHARE = "slipstream.share"
    EVALUATION = "slipstream.evaluation"
    SUITE = "slipstream.suite"


POLICY_CALL: Attributes = {Attribute.OPERATION: "chat", Attribute.PROVIDER: "slipstream"}
"""The attributes of each call of the policy."""


def answer_attributes(completion: Mapping[str, Any]) -> Attributes:
    """The attributes of a `chat.completion`, whatever is wrong with it."""
    usage = completion.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    choices = completion.get("choices")
    reasons = [
        reason
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, Mapping) and isinstance(reason := choice.get("finish_reason"), str)
    ]
    return {
        Attribute.RESPONSE_ID: _text(completion.get("id")),
        Attribute.RESPONSE_MODEL: _text(completion.get("model")),
        Attribute.FINISH_REASONS: reasons or None,
        Attribute.INPUT_TOKENS: _count(usage.get("prompt_tokens")),
        Attribute.OUTPUT_TOKENS: _count(usage.get("completion_tokens")),
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
