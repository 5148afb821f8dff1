"""The Explorer's HTTP, as `trinity-contract.md` says it is.

httpx is right here: these calls take seconds and are few; the hot path is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from slipstream.errors import ExplorerRefused, ExplorerUnavailable

_KNOWN_FIELDS = (
    "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "max_tokens",
    "max_completion_tokens", "stop", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias",
    "seed", "reasoning_effort", "chat_template_kwargs",
)  # fmt: skip
"""What of a captured request the policy's engine (vLLM's chat completions) understands. The rest is production's own
(`metadata`, `user`, `service_tier`, ...) and would be refused or leak."""

_SHORT = 30.0
"""Seconds for the Explorer's light calls: they touch memory and one small table."""


@dataclass(frozen=True, slots=True)
class ExplorerCounters:
    """The Explorer's counters. They belong to its process: one that went back tells of a restart.

    Attributes:
        ready: experiences given a reward so far.
        total: experiences recorded so far.
        step: commits carried out so far.
        version: the policy version that every engine has reached, or None where it is not told.
    """

    ready: int
    total: int
    step: int
    version: int | None

    def restarted_since(self, ready: int, total: int, step: int) -> bool:
        """Whether the process that had these counters is gone."""
        return self.ready < ready or self.total < total or self.step < step


class ExplorerClient:
    """Calls the Explorer. Never sends it a caller's headers: it has no use for them, and they hold secrets.

    Args:
        base_url: such as `http://127.0.0.1:8010`.
        model: the policy's model name; None asks the Explorer, once.
        chat_timeout: seconds for one chat completion.
        connect_timeout, commit_timeout: seconds.

    Every method raises `ExplorerUnavailable` where another try may help, and `ExplorerRefused` where it will not.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None,
        chat_timeout: float,
        connect_timeout: float,
        commit_timeout: float,
        concurrency: int,
    ) -> None:
        self._model = model
        self._chat_timeout = httpx.Timeout(chat_timeout, connect=connect_timeout)
        self._short_timeout = httpx.Timeout(_SHORT, connect=connect_timeout)
        self._commit_timeout = httpx.Timeout(commit_timeout, connect=connect_timeout)
        self._client = httpx.AsyncClient(
            base_url=base_url,
            trust_env=False,  # a proxy from the environment must not stand between the sidecar and its Explorer
            limits=httpx.Limits(max_connections=concurrency + 4, max_keepalive_connections=concurrency + 4),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def model(self) -> str:
        """The policy's model name."""
        if self._model is None:
            body = await self._call("GET", "/v1/models", self._short_timeout)
            models = body.get("data") or []
            if not models or not isinstance(models[0], dict) or not isinstance(models[0].get("id"), str):
                raise ExplorerUnavailable("the Explorer's /v1/models names no model")
            self._model = models[0]["id"]
        return self._model

    async def request_for(self, captured: Mapping[str, Any]) -> dict[str, Any]:
        """The request that repeats a captured one on the policy: one whole answer, under the policy's name."""
        kept = {name: captured[name] for name in _KNOWN_FIELDS if captured.get(name) is not None}
        return {**kept, "model": await self.model(), "n": 1, "stream": False}

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for one chat completion and check that it is one: an id, and one choice with a message."""
        answer = await self._call("POST", "/v1/chat/completions", self._chat_timeout, request)
        choices = answer.get("choices")
        if not isinstance(answer.get("id"), str) or not answer["id"]:
            raise ExplorerRefused("the Explorer's answer has no id")
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            raise ExplorerRefused("the Explorer's answer has not exactly one choice")
        if not isinstance(choices[0].get("message"), dict):
            raise ExplorerRefused("the Explorer's answer has no message")
        return answer

    async def feedback(self, *, msg_id: str, reward: float, task_id: str, run_id: int) -> None:
        """Hand over one reward. One at a time: Trinity's table races on concurrent duplicates.

        Raises:
            ValueError: the reward is not finite. Trinity would take it and train on it.
        """
        if not math.isfinite(reward):
            raise ValueError(f"reward {reward} of {msg_id} is not finite")
        body = {"msg_ids": [msg_id], "reward": reward, "task_id": task_id, "run_id": run_id}
        await self._call("POST", "/feedback", self._short_timeout, body)

    async def commit(self) -> None:
        """Hand the rewarded experiences to the Trainer."""
        await self._call("POST", "/commit", self._commit_timeout, {})

    async def counters(self) -> ExplorerCounters:
        body = await self._call("GET", "/metrics", self._short_timeout)
        try:
            versions = [int(value) for name, value in body.items() if name.endswith("/model_version")]
            return ExplorerCounters(
                ready=int(body["rollout/ready_experience_count"]),
                total=int(body["rollout/total_experience_count"]),
                step=int(body["explore_step_num"]),
                version=min(versions, default=None),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ExplorerUnavailable(f"the Explorer's /metrics lacks a counter: {error!r}") from error

    async def _call(
        self, method: str, path: str, timeout: httpx.Timeout, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            response = await self._client.request(method, path, json=body, timeout=timeout)
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL) as error:
            raise ExplorerUnavailable(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error
        if response.status_code == 429 or response.status_code >= 500:
            raise ExplorerUnavailable(
                _said(method, path, response), status=response.status_code, retry_after=_retry_after(response)
            )
        if response.status_code >= 300:
            raise ExplorerRefused(_said(method, path, response))
        try:
            parsed = response.json()
        except ValueError as error:
            raise ExplorerUnavailable(f"{method} {path}: the answer is not JSON") from error
        if not isinstance(parsed, dict):
            raise ExplorerUnavailable(f"{method} {path}: the answer is not a JSON object")
        return parsed


def _said(method: str, path: str, response: httpx.Response) -> str:
    return f"{method} {path}: {response.status_code} {response.text[:500]}"


def _retry_after(response: httpx.Response) -> float | None:
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
