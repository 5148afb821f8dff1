"""The model behind a simulated user: any endpoint of OpenAI's chat completions, which is not the sidecar's."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from slipstream_client.http import path_at_sidecar
from slipstream_client.simulated_user.budget import Purse
from slipstream_client.simulated_user.errors import SimulatedUserError
from slipstream_client.validation import clean

OPENAI = "https://api.openai.com/v1"

KEY = "SLIPSTREAM_USER_API_KEY"
"""Environment variable of the endpoint's key. `OPENAI_API_KEY` is for OpenAI's own, and goes to no other host."""

PAUSES = (0.5, 2.0)
"""Seconds before another attempt, after no answer, 429 or 5xx."""

TIMEOUT = httpx.Timeout(120, connect=5)
"""Seconds: a user's message is short."""

MAX_WHY = 300
"""Characters of an endpoint's error message."""


@dataclass(frozen=True)
class Answer:
    """The model's answer; `tokens` is None if the endpoint does not say how many the call took."""

    text: str
    tokens: int | None


class _Again(Exception):
    """The same request may work later; the argument says why it did not."""


class Endpoint:
    """Sends chat completions. Its clients have no hook: nothing of the agent's context goes along.

    Args:
        fields: of each request, beside its messages.
    """

    def __init__(self, base_url: str, fields: Mapping[str, Any]) -> None:
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._fields = dict(fields)
        self._context: ssl.SSLContext | bool | None = None

    def ask(self, messages: Sequence[Mapping[str, Any]], purse: Purse) -> Answer:
        """Return the model's answer, after some attempts.

        Raises:
            SimulatedUserError: there is none that can be used, or nothing left to spend on it.
        """
        with httpx.Client(**self._options()) as client:
            for pause in (*PAUSES, None):
                purse.begin()
                try:
                    try:
                        return self._read(client.post(**self._request(messages)), purse)
                    except httpx.RequestError as error:
                        raise _Again(str(error) or type(error).__name__) from error
                except _Again as again:
                    if pause is None:
                        raise self._failed(str(again)) from again
                    time.sleep(pause)
        raise AssertionError("unreachable")

    async def async_ask(self, messages: Sequence[Mapping[str, Any]], purse: Purse) -> Answer:
        """The asynchronous twin of `ask`."""
        async with httpx.AsyncClient(**self._options()) as client:
            for pause in (*PAUSES, None):
                purse.begin()
                try:
                    try:
                        return self._read(await client.post(**self._request(messages)), purse)
                    except httpx.RequestError as error:
                        raise _Again(str(error) or type(error).__name__) from error
                except _Again as again:
                    if pause is None:
                        raise self._failed(str(again)) from again
                    await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def _options(self) -> dict[str, Any]:
        if path_at_sidecar(httpx.URL(self._url)) is not None:
            raise self._failed("base_url is the sidecar's, which would capture these calls as production's")
        if self._context is None:  # reading the certificates takes a tenth of a second, so once for all calls
            self._context = httpx.create_ssl_context() if self._url.startswith("https:") else False
        return {"timeout": TIMEOUT, "verify": self._context}

    def _request(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        key = self._key()
        if key and not (key.isascii() and key.isprintable()):  # httpx would name it in its error
            raise self._failed("its key has other characters than printable ASCII")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return {"url": self._url, "headers": headers, "json": {**self._fields, "messages": list(messages)}}

    def _key(self) -> str | None:
        url, openai = httpx.URL(self._url), httpx.URL(OPENAI)
        is_openai = (url.scheme, url.host, url.port) == (openai.scheme, openai.host, openai.port)
        return os.environ.get(KEY) or (os.environ.get("OPENAI_API_KEY") if is_openai else None)

    def _read(self, response: httpx.Response, purse: Purse) -> Answer:
        if response.status_code == 429 or response.status_code >= 500:
            raise _Again(self._said(response))
        if not response.is_success:
            raise self._failed(self._said(response))
        try:
            content = response.json()
            choice = content["choices"][0]
            text = choice["message"]["content"]
            ended = choice.get("finish_reason")
            tokens = _tokens(content.get("usage"))
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            raise self._failed("its answer is no chat completion") from None
        purse.took(tokens)
        if ended in ("length", "content_filter"):
            raise self._failed(f"its answer is not whole: finish_reason {ended}")
        if not isinstance(text, str) or not text.strip():
            raise self._failed("its answer has no text")
        return Answer(clean(text).strip(), tokens)

    def _said(self, response: httpx.Response) -> str:
        """The endpoint's error, without the key, which some repeat."""
        try:
            message = str(response.json()["error"]["message"])
        except (LookupError, TypeError, ValueError, RecursionError):
            message = response.reason_phrase
        return f"{response.status_code} {clean(self._without_key(message))[:MAX_WHY]}"

    def _without_key(self, text: str) -> str:
        key = self._key()
        return text.replace(key, "[redacted]") if key else text

    def _failed(self, why: str) -> SimulatedUserError:
        return SimulatedUserError("user_failed", f"the simulated user's model at {self._url}: {self._without_key(why)}")


def _tokens(usage: Any) -> int | None:
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return total if isinstance(total, int) and not isinstance(total, bool) and total >= 0 else None
