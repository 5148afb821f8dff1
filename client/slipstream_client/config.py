"""Address of the sidecar, and how long the client waits for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

BlockedTools = Literal["result", "raise"]

DEFAULT_URL = "http://127.0.0.1:8100"
"""Address of `slipstream serve` by default."""

KEY_HEADER = "x-slipstream-key"
KEY_PREFIX = "slp_"
"""Prefix of the sidecar's own keys."""


@dataclass(frozen=True)
class Settings:
    """Settings that `configure` made.

    Attributes:
        url: of the sidecar, without `/v1` and without a slash at its end.
        api_key: one of the sidecar's `access.keys`, `slp_...`: it goes to the sidecar with everything, the agent's
            calls included, beside the production model's own key. Any other is a Bearer token for the client's own
            requests (`facade.api_key`, or what a gateway in front of the sidecar asks for), and goes with no call.
        timeout: seconds that a feedback, a mark or a run's report may take. Calls of the agent are not meant.
        blocked_tools: `"result"`: a guarded tool that is blocked in a replay returns a result that says so. `"raise"`:
            it raises `SideEffectBlocked`.
        named: whether somebody said the URL; else it is the default.
    """

    url: str = DEFAULT_URL
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 5.0
    blocked_tools: BlockedTools = "result"
    named: bool = False

    @property
    def call_headers(self) -> dict[str, str]:
        """Return the headers of each call of the agent to the sidecar."""
        key = self.api_key
        return {KEY_HEADER: key} if key is not None and key.startswith(KEY_PREFIX) else {}

    @property
    def own_headers(self) -> dict[str, str]:
        """Return the headers of the client's own requests to the sidecar."""
        return self.call_headers or ({"authorization": f"Bearer {self.api_key}"} if self.api_key else {})

    @property
    def is_https(self) -> bool:
        """Return whether there is a certificate to verify. Loading the authorities takes a tenth of a second of the
        interpreter, which no other address needs."""
        return urlsplit(self.url).scheme == "https"

    @property
    def base_url(self) -> str:
        """Return the `base_url` for an OpenAI client."""
        return f"{self.url}/v1"


_configured: Settings | None = None


def configure(
    url: str | None = None,
    *,
    api_key: str | None = None,
    timeout: float | None = None,
    blocked_tools: BlockedTools | None = None,
) -> Settings:
    """Say where the sidecar is; once, before clients are made. What is left out comes from the environment.

    Args:
        url: such as `http://127.0.0.1:8100`, with or without `/v1`. Else `SLIPSTREAM_URL`, else `DEFAULT_URL`.
        api_key: see `Settings`. Else `SLIPSTREAM_API_KEY`, else none.
        timeout: seconds, above 0. Else 5.
        blocked_tools: `"result"` or `"raise"`, see `Settings`. Else `"result"`.

    Raises:
        ValueError: a value cannot be used; the message names it.
    """
    global _configured
    _configured = _read(url, api_key, timeout, blocked_tools)
    return _configured


def settings() -> Settings:
    """Return the settings of `configure`, or those of the environment, which is read at the first use."""
    global _configured
    if _configured is None:
        _configured = _read(None, None, None, None)
    return _configured


def blocked_tools(name: str, value: object) -> BlockedTools:
    """Check the behaviour of blocked tools. Raises ValueError with this name for anything else."""
    if value not in ("result", "raise"):
        raise ValueError(f"{name}: expected 'result' or 'raise', found {value!r}")
    return value


def _read(url: str | None, api_key: str | None, timeout: float | None, blocked: BlockedTools | None) -> Settings:
    name = "url" if url is not None else "SLIPSTREAM_URL"
    said = url if url is not None else os.environ.get("SLIPSTREAM_URL") or None
    key = api_key if api_key is not None else os.environ.get("SLIPSTREAM_API_KEY")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ValueError("api_key: expected printable ASCII characters without a line break, found others")
    found = Settings(
        url=DEFAULT_URL if said is None else _address(said, name),
        api_key=key,
        blocked_tools=blocked_tools("blocked_tools", "result" if blocked is None else blocked),
        named=said is not None,
    )
    if timeout is None:
        return found
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"timeout: expected seconds above 0, found {timeout!r}")
    return replace(found, timeout=float(timeout))


def _address(url: str, name: str) -> str:
    """The address, without `/v1` and with its scheme and host in lower case. Raises ValueError with this name."""
    expected = f"{name}: expected the sidecar's address, such as {DEFAULT_URL}, found {url!r}"
    try:
        parts = urlsplit(str(url))
        usable = (
            isinstance(url, str)
            and url.isprintable()  # urlsplit leaves line breaks out, and httpx refuses them at each request
            and " " not in url
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port or 1) > 0
        )
    except ValueError:  # a port that is no number
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ValueError(expected)
    if "@" in parts.netloc:  # it would be in every log line
        raise ValueError(f"{name}: expected an address without user and password; use api_key")
    found = parts._replace(netloc=parts.netloc.lower()).geturl()
    return found.rstrip("/").removesuffix("/v1").rstrip("/")
