"""The judges that `select_model` brings: the fastest model, and the one that takes the fewest tokens.

They judge what `select_model` measures of a run, so they mean nothing to `tune` or `tune_prompt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream_client.tuner.functions import JudgeOutput


async def avg_time_judge(task: Mapping[str, Any], response: Any) -> JudgeOutput:
    """The less time a run of the workflow takes, the better: the reward is its seconds, below 0.

    Args:
        response: what `select_model` hands to judges, with the seconds in `metrics["execution_time"]`.

    Raises:
        ValueError: it is not from there.
    """
    seconds = _metrics(response).get("execution_time")
    if seconds is None:
        raise ValueError("response['metrics']['execution_time']: missing")
    return JudgeOutput(reward=-seconds, metrics={"avg_time_seconds": seconds})


async def avg_token_consumption_judge(task: Mapping[str, Any], response: Any) -> JudgeOutput:
    """The fewer tokens a run takes, of prompts and answers together, the better: the reward is their number, below 0.

    Args:
        response: what `select_model` hands to judges, with the tokens in `metrics["usage"]`.

    Raises:
        ValueError: it is not from there, or the model's answers do not tell their tokens.
    """
    usage = _metrics(response).get("usage")
    if usage is None:
        raise ValueError("response['metrics']['usage']: missing; the model's answers do not tell their tokens")
    tokens = usage.get("total_tokens", usage.get("output_tokens"))
    if tokens is None:
        raise ValueError("response['metrics']['usage']: neither total_tokens nor output_tokens")
    return JudgeOutput(reward=-float(tokens), metrics={"token_consumed": float(tokens)})


def _metrics(response: Any) -> Mapping[str, Any]:
    if not isinstance(response, Mapping) or not response.get("metrics"):
        raise ValueError(f"response: expected what select_model hands to judges, found {type(response).__name__}")
    metrics: Mapping[str, Any] = response["metrics"]
    return metrics
