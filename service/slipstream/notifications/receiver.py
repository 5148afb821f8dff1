"""One receiver of webhooks: an event is posted to it, signed, and its answer looked at."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import httpx

from slipstream.settings.webhooks import Receiver
from slipstream.store.outbox import Delivery
from slipstream.webhooks.events import EventType
from slipstream.webhooks.outgoing import TargetRefused, outgoing_client
from slipstream.webhooks.signature import signed, signing_key

_CONNECT = 10.0
"""Seconds for a connection, of those that a try has."""

_MOST_ERROR = 300
"""Characters of an error that are kept."""


class ReceiverClient:
    """Tells one receiver of events.

    Args:
        timeout: seconds of a try.
    """

    def __init__(self, settings: Receiver, timeout: float) -> None:
        self.name = settings.name
        self.events: frozenset[EventType] = frozenset(settings.events)
        self._url = settings.url
        self._key = signing_key(settings.secret.get_secret_value())
        self._timeout = timeout
        # A try as a whole has one limit, in `tell`; httpx's own would apply to each read alone.
        limits = httpx.Timeout(None, connect=_CONNECT)
        self._client = outgoing_client(settings.allow_private, settings.tls, timeout=limits)

    async def tell(self, told: Delivery, now: float) -> str | None:
        """Post an event. Returns None if the receiver answered with a 2xx; else why it has not got it, in words.

        Args:
            now: Unix seconds, which the signature has.
        """
        body = body_of(told)
        headers = {**signed(self._key, told.name, int(now), body), "content-type": "application/json"}
        try:
            async with asyncio.timeout(self._timeout):
                async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                    status = response.status_code  # what else it says is of no interest, and may be long
        except TimeoutError:
            return f"no answer within {self._timeout:g} s (webhooks.timeout)"
        except TargetRefused as error:
            return f"{error} (allow_private of this receiver)"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:_MOST_ERROR]
        return None if 200 <= status < 300 else f"HTTP {status}"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def body_of(told: Delivery) -> bytes:
    """The JSON that receivers get."""
    at = datetime.fromtimestamp(told.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"type": told.type, "timestamp": at, "data": told.data}).encode()
