"""Asking an HTTP service for a reward: time limits, retries, and an answer that is checked before it is believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import AfterValidator, AnyHttpUrl, Field, TypeAdapter, ValidationError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slipstream.config.units import Duration, PositiveDuration
from slipstream.errors import ScoringError
from slipstream.http.encodings import Undecodable
from slipstream.rewards.calculator import Parameters
from slipstream.webhooks.answers import whole
from slipstream.webhooks.outgoing import TargetRefused, outgoing_client

Answer = TypeVar("Answer")

_HTTP_URL = TypeAdapter(AnyHttpUrl)
_LONGEST_WAIT = 30.0  # seconds between two attempts
_LARGEST_ANSWER = 1024**2  # bytes; it is held in memory beside production's traffic


def _http_url(text: str) -> str:
    try:
        _HTTP_URL.validate_python(text)
    except ValidationError as error:
        raise ValueError("a URL that starts with http:// or https://") from error
    return text.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]


class EndpointParameters(Parameters):
    """Parameters of every calculator that asks a service.

    Attributes:
        timeout: seconds for one attempt, from connecting to the answer's last byte.
        attempts: how often to ask; 429, 5xx, transport errors and answers that cannot be used are tried again.
        backoff: the most seconds to wait before the second attempt, doubled for each one after; the wait is random.
        concurrency: how many questions may be under way at once.
    """

    timeout: PositiveDuration = 30.0
    attempts: Annotated[int, Field(ge=1)] = 3
    backoff: Duration = 0.5
    concurrency: Annotated[int, Field(ge=1)] = 4


class NoUsableAnswer(ScoringError):
    """This attempt gave no usable answer; another one may."""


class Endpoint:
    """One URL that is asked by POST, with JSON both ways. Raises ValueError for a header that cannot be sent.

    Args:
        sign: more headers, made of the body of each try.
        allow_private: which private addresses the URL may have; see `outgoing`.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        parameters: EndpointParameters,
        *,
        sign: Callable[[bytes], Mapping[str, str]] | None = None,
        allow_private: bool | tuple[str, ...] = True,
    ) -> None:
        self._url = url
        self._parameters = parameters
        self._slots = asyncio.Semaphore(parameters.concurrency)
        sent = {"content-type": "application/json", **headers}
        for name, text in sent.items():  # refused while sending, the error would show the value, which is a secret
            if not (text.isascii() and text.isprintable() and text == text.strip()):
                raise ValueError(f"printable ASCII, with no space or line break at its ends, for the header {name}")
        # The whole attempt has one limit, in `_once`; httpx's own would apply to each read alone.
        self._client = outgoing_client(allow_private, headers=sent, timeout=None)
        self._sign = sign

    async def ask(self, body: bytes, read: Callable[[Any], Answer]) -> Answer:
        """POST the body and read the JSON answer with `read`, which raises ValueError for one it cannot use.

        Raises:
            ScoringError: no usable answer after the last attempt, or a 4xx.
        """
        p = self._parameters
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(NoUsableAnswer),
            stop=stop_after_attempt(p.attempts),
            wait=wait_random_exponential(multiplier=p.backoff, max=_LONGEST_WAIT),
            reraise=True,
        ):
            with attempt:
                async with self._slots:
                    return await self._once(body, read)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(self, body: bytes, read: Callable[[Any], Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._parameters.timeout):
                signature = self._sign(body) if self._sign is not None else None
                async with self._client.stream("POST", self._url, content=body, headers=signature) as response:
                    answer = await whole(response, _LARGEST_ANSWER)
        except TimeoutError as error:
            raise NoUsableAnswer(f"no answer within {self._parameters.timeout:g} s") from error
        except Undecodable as error:
            too_large = error.reason == "too_large"
            text = "an answer of more than 1 MiB" if too_large else "an answer that cannot be used: its encoding"
            raise NoUsableAnswer(text) from error
        except TargetRefused as error:
            raise ScoringError(str(error)) from error
        except httpx.TransportError as error:
            raise NoUsableAnswer(f"{type(error).__name__}: {error}") from error
        if response.status_code == 429 or response.status_code >= 500:
            raise NoUsableAnswer(f"HTTP {response.status_code}")
        if not response.is_success:
            raise ScoringError(f"HTTP {response.status_code}{_explanation(answer)}")
        try:
            return read(json.loads(answer))
        except (ValueError, RecursionError) as error:
            raise NoUsableAnswer(f"an answer that cannot be used: {str(error)[:300]}") from error

    async def aclose(self) -> None:
        await self._client.aclose()


def _explanation(answer: bytes) -> str:
    """Return the message of an error response in OpenAI's format, for the person who configured the endpoint."""
    try:
        message = json.loads(answer)["error"]["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f": {str(message)[:300]}"
