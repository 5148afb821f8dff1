"""The SDKs of OpenAI and Anthropic, as clients that call the production model through the sidecar."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from slipstream_client.config import settings
from slipstream_client.extras import hint
from slipstream_client.http import before_async_request, before_request

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from openai import AsyncOpenAI, OpenAI

S = TypeVar("S", bound="OpenAI | AsyncOpenAI | Anthropic | AsyncAnthropic")
A = TypeVar("A", bound="Anthropic | AsyncAnthropic")

_NO_KEY = "none"
"""The SDKs send no request without a key, and the sidecar may have production's."""


def openai(**options: Any) -> OpenAI:
    """An `openai.OpenAI` that calls the production model through the sidecar and carries the context.

    Args:
        options: of `openai.OpenAI`; an `http_client` among them gets our hook. The key is the production model's:
            `api_key`, or else `OPENAI_API_KEY`; without one the sidecar must have it (`production.api_key`).

    Raises:
        ImportError: the openai SDK is not installed.
    """
    _sdk_is_there("openai()", "openai")
    import openai as sdk

    return _hooked(sdk.OpenAI(**_to_sidecar(options)), before_request)


def async_openai(**options: Any) -> AsyncOpenAI:
    """The asynchronous twin of `openai`; several event loops may use it (with an `http_client` of your own: one)."""
    _sdk_is_there("async_openai()", "openai")
    import openai as sdk

    client = sdk.AsyncOpenAI(**_to_sidecar(_for_all_loops(options, sdk.DefaultAsyncHttpxClient)))
    return _hooked(client, before_async_request)


def anthropic(**options: Any) -> Anthropic:
    """An `anthropic.Anthropic` that calls the production model through the sidecar and carries the context.

    Args:
        options: of `anthropic.Anthropic`; an `http_client` among them gets our hook. The credential is the production
            model's, found as that class does it; without one the sidecar must have it (`production.api_key`).

    Raises:
        ImportError: the anthropic SDK is not installed.
    """
    _sdk_is_there("anthropic()", "anthropic")
    import anthropic as sdk

    return _hooked(_with_key(sdk.Anthropic(**{"base_url": settings().url, **options})), before_request)


def async_anthropic(**options: Any) -> AsyncAnthropic:
    """The asynchronous twin of `anthropic`; several event loops may use it (with an `http_client` of your own: one)."""
    _sdk_is_there("async_anthropic()", "anthropic")
    import anthropic as sdk

    options = _for_all_loops(options, sdk.DefaultAsyncHttpxClient)
    return _hooked(_with_key(sdk.AsyncAnthropic(**{"base_url": settings().url, **options})), before_async_request)


def _sdk_is_there(name: str, sdk: str) -> None:
    if importlib.util.find_spec(sdk) is None:
        raise ImportError(hint(name, sdk, sdk))


def _for_all_loops(options: dict[str, Any], http_client: Any) -> dict[str, Any]:
    from slipstream_client.per_loop import per_loop

    if options.get("http_client") is not None:
        return options
    return {**options, "http_client": per_loop(http_client)()}


def _to_sidecar(options: dict[str, Any]) -> dict[str, Any]:
    if not (options.get("api_key") or os.environ.get("OPENAI_API_KEY") or options.get("workload_identity")):
        options = {**options, "api_key": _NO_KEY}
    return {"base_url": settings().base_url, **options}


def _with_key(client: A) -> A:
    """The client, with a key that says nothing if it has found no credential."""
    if not (client.api_key or client.auth_token or getattr(client, "credentials", None)):
        client.api_key = _NO_KEY
    return client


def _hooked(client: S, hook: Callable[..., Any]) -> S:
    """The SDK's own HTTP client with our hook: of httpx or httpx2, as the SDK is, and closed when the SDK closes it."""
    hooks = client._client.event_hooks["request"]
    if hook not in hooks:
        hooks.append(hook)
    return client
