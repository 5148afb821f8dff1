"""The Explorer, or a sidecar's facade in front of it: feedback, commit, and the version it serves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import httpx

from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.waiting import Wait

logger = logging.getLogger(__name__)

DIRECT = {"all://127.0.0.1": None, "all://localhost": None}
"""Mounts of an httpx client: what is on this machine is not asked by way of the environment's proxy."""

_RETRY_FOR = 120.0  # seconds: a restart of what is asked
_FIRST_RETRY_FOR = 10.0  # seconds, of what is asked first: it may be a wrong address
_TIMEOUT = 600.0  # seconds: a commit through the facade ends when the delivery has
_LONGEST_PAUSE = 5.0

_EXPECTED = (
    "explorer_url: expected that of an Explorer (http://host:8010) or of a sidecar's facade "
    "(http://sidecar:8100/explorer), without /v1"
)


class Refused(TunerError):
    """The Explorer does not take what it was told, however often it is told."""


@dataclass(frozen=True)
class Feedback:
    """The reward of one run. `group_size` is how many runs its group has."""

    msg_ids: tuple[str, ...]
    reward: float
    task_id: str
    run_id: int
    group_size: int


class Explorer:
    """Trinity's HTTP; every call is tried again where that has no effect twice.

    Args:
        url: without `/v1`, and without credentials, which the log would show.
        headers: that go with each request, for a facade with a key.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self.headers = dict(headers or {})
        self._client = httpx.AsyncClient(
            headers=self.headers, timeout=httpx.Timeout(_TIMEOUT, connect=10), mounts=DIRECT
        )

    async def __aenter__(self) -> Explorer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def model(self) -> str:
        """The name that the policy model is served by."""
        said = await self._asked("GET", "/v1/models", retry_for=_FIRST_RETRY_FOR)
        try:
            return str(said["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise TunerError(f"{_EXPECTED}; {self._url}/v1/models lists no model: {said}") from error

    async def version(self) -> int:
        """The newest version that any of its engines serves; 0 is the model as it was given."""
        metrics = await self._asked("GET", "/metrics")
        served = [
            value
            for name, value in (metrics.items() if isinstance(metrics, dict) else ())
            if name.startswith("rollout/model_") and name.endswith("/model_version")
        ]
        return int(max(served, default=0))

    async def feedback(self, feedback: Feedback) -> None:
        """Tells the reward of a run. What a facade does not know, or does not take, is logged."""
        said = await self._asked("POST", "/feedback", asdict(feedback))
        if without_effect := said.get("message"):
            logger.warning("not taken by %s: %s", self._url, without_effect)

    async def commit(self) -> None:
        await self._asked("POST", "/commit", {})

    async def _asked(self, method: str, path: str, body: Any = None, retry_for: float = _RETRY_FOR) -> Any:
        deadline, pause = time.monotonic() + retry_for, 0.25
        wait = Wait(f"{self._url}{path} to answer")
        while True:
            try:
                response = await self._client.request(method, f"{self._url}{path}", json=body)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__} {error}".strip()
            else:
                problem = f"{response.status_code} {response.text[:500]}"
                if response.status_code == httpx.codes.NOT_FOUND:
                    raise Refused(f"{_EXPECTED}; {method} {self._url}{path}: {problem}")
                if response.is_success:
                    try:
                        return response.json()
                    except ValueError:
                        raise Refused(f"{_EXPECTED}; {method} {self._url}{path} is no JSON: {problem}") from None
                if response.is_client_error and response.status_code != 429:
                    raise Refused(f"explorer_url: {method} {self._url}{path}: {problem}")
            if time.monotonic() + pause > deadline:
                raise TunerError(f"explorer_url: {method} {self._url}{path}: {problem}")
            wait.goes_on(problem)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
