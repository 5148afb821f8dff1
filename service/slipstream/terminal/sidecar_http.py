"""Questions of a command to a running sidecar, and its refusals as errors that say what to do."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from slipstream.errors import SlipstreamError
from slipstream.settings.source import load_settings
from slipstream.terminal.inert import inert

_PATIENCE = 10.0
_DEFAULT_URL = "http://127.0.0.1:8100"

_LONGEST = 1000
"""Characters of a refusal."""

READERS, OPERATORS = "viewer, operator, metrics or admin", "operator or admin"
"""Roles that may look at states and figures, and that may decide, in words."""


def address(url: str | None, config: Path, environment: Mapping[str, str]) -> str:
    """Return the URL of the sidecar: the given one, else the one in its file, else the default.

    Raises:
        ConfigError: the file is wrong.
    """
    if url is not None:
        return url.rstrip("/")
    return load_settings(config, environment).listen.url if config.is_file() else _DEFAULT_URL


class SidecarAway(SlipstreamError):
    """No sidecar answers at an address, or what answers there has failed: later one may."""


class NotThere(SlipstreamError):
    """The sidecar answers that it has nothing of this name."""


class NotTaken(SlipstreamError):
    """The sidecar does not take a body: it is too large, or one of its fields is wrong."""


def client(url: str, key: str | None, tenant: str | None = None) -> httpx.Client:
    """
    Args:
        tenant: whose tasks and answers are meant, for a key that reaches all tenants.

    Raises:
        SlipstreamError: the URL is none, or the key or the tenant cannot be in a header.
    """
    given = {"x-slipstream-key": key, "x-slipstream-tenant": tenant}
    headers = {name: value for name, value in given.items() if value}
    # the system's authorities, which SSL_CERT_FILE replaces; loading them takes a moment, which http:// does not need
    verify = ssl.create_default_context() if url.startswith("https:") else False
    try:
        return httpx.Client(base_url=url, headers=headers, timeout=_PATIENCE, trust_env=False, verify=verify)
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        text = "--url, --key, --tenant: expected a URL, and a key and a tenant of ASCII letters"
        raise SlipstreamError(f"{text} ({error})") from error


def ask(
    client: httpx.Client,
    path: str,
    *,
    roles: str,
    field: str,
    query: Mapping[str, str | int | float] | None = None,
    body: Mapping[str, Any] | None = None,
    method: str | None = None,
) -> dict[str, Any]:
    """The sidecar's answer to a GET, or to a POST of a body, or to another method.

    Args:
        roles: that a key needs for it, for the error.
        field: that the answer has; without it, it is another server's.

    Raises:
        SidecarAway: the sidecar cannot be reached, or has failed.
        NotThere: it has nothing of this name.
        NotTaken: it does not take the body.
        SlipstreamError: it does not take the key, or refuses what was asked: then in its own words; or the body is no
            JSON.
    """
    url = str(client.base_url).rstrip("/")
    try:
        response = client.request(method or ("GET" if body is None else "POST"), path, params=query, json=body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SidecarAway(
            f"no sidecar answers at {url} ({type(error).__name__} {error}); is it running? --url names another"
        ) from error
    except UnicodeEncodeError as error:
        raise SlipstreamError(f"expected text in UTF-8, found {error.object!a}") from error
    except (TypeError, ValueError) as error:  # of the body, which YAML and the command line may give what JSON has not
        expected = "expected what JSON can hold: text, finite numbers, true, false, null, lists and mappings"
        raise SlipstreamError(f"{expected} ({error})") from error
    try:
        found = response.json()
    except ValueError:
        found = None
    message = _refusal(found)
    if response.is_server_error and message is not None:
        raise SidecarAway(f"{url}{path}: {response.status_code} {message}")
    if response.is_client_error and message is not None:
        if _code(found) in _WANT_A_KEY:
            message = f"{message.removesuffix('.')}; give a key with the role {roles} by --key or SLIPSTREAM_API_KEY"
        raise _REFUSALS.get(response.status_code, SlipstreamError)(message)
    if not response.is_success or not isinstance(found, dict) or field not in found:
        raise (SidecarAway if response.is_server_error else SlipstreamError)(
            f"{url}{path}: expected the answer of a sidecar, found {response.status_code} {inert(response.text, 200)}"
        )
    return found


_REFUSALS: Mapping[int, type[SlipstreamError]] = {404: NotThere, 413: NotTaken, 422: NotTaken}

_WANT_A_KEY = ("slipstream_key_missing", "slipstream_role_missing")
"""Codes of refusals that another key mends."""


def _refusal(found: Any) -> str | None:
    """The sidecar's own words for a refusal; None where another server answered, or the route is not there."""
    if _code(found) in (None, "http_error"):
        return None
    said = inert(found["error"].get("message"), _LONGEST)
    return said.removeprefix("Slipstream: ")  # a command's errors have the name in front already


def _code(found: Any) -> Any:
    """The code of a refusal; None where there is none."""
    error = found.get("error") if isinstance(found, dict) else None
    return error.get("code") if isinstance(error, dict) else None
