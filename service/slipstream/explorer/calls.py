"""Calls of the Explorer's HTTP, and what each of them has in common; `trinity-contract.md` says what there is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from slipstream.dialects.body import Unreadable, header_value, parse_json
from slipstream.errors import ExplorerRefused, ExplorerUnavailable
from slipstream.explorer.http import ExplorerHttp, NotConnected, Response
from slipstream.http.connect import ClientTls
from slipstream.http.errors import UpstreamError
from slipstream.memory.parsing import ParseMemory, memory_of

SHORT = 30.0
"""Seconds for the Explorer's light calls: they touch memory and one small table."""

_LONGEST_ANSWER = 16 * 1024**2
"""Bytes. Far more than a completion with the ids and logprobs of all its tokens; more is no answer, and would take the
memory that production's traffic needs."""

_LONG_ANSWER = 256 * 1024
"""Bytes. A longer one is parsed in a thread: it takes milliseconds, and the control API shares this event loop."""

_COPIES = 2
"""Copies of an answer's values: redaction makes one."""

_LARGEST_COUNTER = 2**31 - 1
"""Largest value of the store's columns."""


@dataclass(frozen=True, slots=True)
class ExplorerCounters:
    """The Explorer's counters. They belong to its process: one that went back tells of a restart.

    Attributes:
        ready: experiences given a reward so far.
        total: experiences recorded so far.
        step: commits carried out so far.
        version: the policy version that every engine has reached, or None where it is not told.
        newest: the version that the first engine has reached, or None.
    """

    ready: int
    total: int
    step: int
    version: int | None
    newest: int | None

    def restarted_since(self, ready: int, total: int, step: int) -> bool:
        """Return whether the process with these counters is gone."""
        return self.ready < ready or self.total < total or self.step < step


class ExplorerCalls:
    """Calls the Explorer. Never sends it a caller's headers: it has no use for them, and they hold secrets.

    Args:
        base_url: such as `http://127.0.0.1:8010`.
        parsing: the memory for answers while they are read.
        connect_timeout: seconds.
        longest: seconds that the longest of its calls may take.

    Every method raises `ExplorerUnavailable` where another try may help, and `ExplorerRefused` where it will not.
    """

    def __init__(
        self,
        base_url: str,
        parsing: ParseMemory,
        *,
        connect_timeout: float,
        longest: float,
        tls: ClientTls | None = None,
    ) -> None:
        self._parsing = parsing
        # A call as a whole has one limit, in `_call`; this one of the connection's must not come before it.
        self._http = ExplorerHttp(base_url, connect_timeout=connect_timeout, timeout=max(SHORT, longest), tls=tls)

    def close(self) -> None:
        """Close the kept connections."""
        self._http.close()

    async def counters(self) -> ExplorerCounters:
        """The counters of the process that answers."""
        body = await self._call("GET", "/metrics", SHORT)
        try:
            versions = [counter(body, name) for name in body if name.endswith("/model_version")]
            return ExplorerCounters(
                ready=counter(body, "rollout/ready_experience_count"),
                total=counter(body, "rollout/total_experience_count"),
                step=counter(body, "explore_step_num"),
                version=min(versions, default=None),
                newest=max(versions, default=None),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ExplorerUnavailable(f"the Explorer's /metrics lacks a counter: {error!r}") from error

    async def _call(
        self,
        method: str,
        path: str,
        seconds: float,
        body: Mapping[str, Any] | None = None,
        *,
        allowed: Callable[[], None] | None = None,
        connected: bool = False,
    ) -> dict[str, Any]:
        """The JSON object that answers a call, which is a short one; `allowed` and `connected` as in
        `ExplorerHttp.send`."""
        content = b"" if body is None else json.dumps(body).encode()  # in ASCII: texts hold lone surrogates too
        async with self._answered(method, path, seconds, content, allowed=allowed, connected=connected) as answer:
            return answer

    @asynccontextmanager
    async def _answered(
        self,
        method: str,
        path: str,
        seconds: float,
        content: bytes,
        *,
        allowed: Callable[[], None] | None = None,
        connected: bool = False,
    ) -> AsyncIterator[dict[str, Any]]:
        """The JSON object that answers a call, in memory that is reserved for it until the block ends."""
        about = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))] if content else []
        try:
            async with asyncio.timeout(seconds):
                response = await self._http.send(
                    method.encode(), path.encode(), about, content, allowed=allowed, connected=connected
                )
                try:
                    answered = await _body(response)
                finally:
                    response.close()
        except TimeoutError as error:
            raise ExplorerUnavailable(f"{method} {path}: no whole answer within {seconds:g} s") from error
        except NotConnected:
            raise
        except UpstreamError as error:
            raise ExplorerUnavailable(f"{method} {path}: {error}") from error
        status, what = response.status, f"{method} {path}: {response.status}"
        said = answered[:500].decode("utf-8", "replace")
        if status == 429 or status >= 500:
            # A server closes the connection behind a 500 of its own: what came next on it would be lost.
            self._http.close()
            raise ExplorerUnavailable(what, status=status, said=said, retry_after=_retry_after(response))
        if status >= 300:
            raise ExplorerRefused(what, status=status, said=said)
        async with self._parsing.held(memory_of(answered, copies=_COPIES)):
            try:
                long = len(answered) > _LONG_ANSWER
                parsed = await asyncio.to_thread(parse_json, answered) if long else parse_json(answered)
            except Unreadable as error:
                raise ExplorerUnavailable(f"{method} {path}: the answer is not JSON ({error.reason})") from error
            if not isinstance(parsed, dict):
                raise ExplorerUnavailable(f"{method} {path}: the answer is not a JSON object")
            del answered
            yield parsed


async def _body(response: Response) -> bytes:
    body = bytearray()
    while not response.at_end:
        body += await response.read()
        if len(body) > _LONGEST_ANSWER:
            raise ExplorerUnavailable(f"the Explorer's answer is longer than {_LONGEST_ANSWER} bytes")
    return bytes(body)


def counter(body: Mapping[str, Any], name: str) -> int:
    value = int(body[name])
    if abs(value) > _LARGEST_COUNTER:
        raise ValueError(f"{name} is {value}")
    return value


def _retry_after(response: Response) -> float | None:
    try:
        return max(0.0, float(header_value(response.headers, b"retry-after")))
    except ValueError:
        return None
