"""A proxy whose users a lane answers, with both ends of both upstreams by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer import Peer, Request, Script
from wire import ListTap, Sidecar, answer, sidecar, upstream

from slipstream.proxy.lane import Lane
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.routing import Routing
from slipstream.serving.breaker import LaneBreaker
from slipstream.serving.page import ServingPage, Split, page_in
from slipstream.settings.serving import Lane as LaneSettings

MODEL = "/kept/step-8"
CHAT = b'{"model":"prod","messages":[{"role":"user","content":"hello"}]}'
ASKED = CHAT.replace(b'"prod"', json.dumps(MODEL).encode())


@dataclass
class Routed:
    """A running proxy, and what its upstreams were asked.

    Attributes:
        page: which a test writes as the training side would.
        whole: a share of everybody.
    """

    side: Sidecar
    page: ServingPage
    whole: Split
    production: list[Request] = field(default_factory=list)
    lane: list[Request] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.side.port

    def count(self, name: str, **labels: str) -> float:
        """The value of a series of the metrics."""
        return self.side.registry.get_sample_value(f"slipstream_serving_{name}", labels) or 0.0

    @property
    def tap(self) -> ListTap:
        found = self.side.tap
        assert isinstance(found, ListTap)
        return found


async def by_production(peer: Peer) -> None:
    """Production's answer to the request that has come."""
    await peer.send(answer(b'{"id":"prod"}', b"content-type: application/json"))


async def by_lane(peer: Peer) -> None:
    """The lane's answer to the request that has come."""
    await peer.send(answer(b'{"id":"lane"}', b"content-type: application/json"))


@contextlib.asynccontextmanager
async def routed(
    folder: Path,
    lane: Script | int = by_lane,
    *,
    production: Script = by_production,
    share: float = 1.0,
    first_byte_timeout: float = 5.0,
    failures: int = 1000,
    max_body: int = 2**20,
    **sections: Any,
) -> AsyncIterator[Routed]:
    """A proxy with a share set.

    Args:
        lane, production: answer each request once it was read; for the lane also a port on which something else is.
        failures: of the lane in a row, after which it is left alone.
    """
    page = page_in(folder)
    found: Routed

    def reading(which: str, script: Script) -> Script:
        async def serve(peer: Peer) -> None:
            while True:
                request = await peer.request()
                getattr(found, which).append(request)
                await script(peer)

        return serve

    async with contextlib.AsyncExitStack() as stack:
        if isinstance(lane, int):
            port = lane
        else:
            port = (await stack.enter_async_context(upstream(reading("lane", lane)))).port
        up = await stack.enter_async_context(upstream(reading("production", production)))
        url = f"http://127.0.0.1:{port}/v1"

        def routing(metrics: ProxyMetrics) -> Routing:
            settings = LaneSettings.model_validate({"base_url": url, "connect_timeout": 1.0, "idle_timeout": 1.0})
            return Routing(
                page, Lane(settings, first_byte_timeout, metrics), LaneBreaker(failures, 60.0), (), max_body=max_body,
                max_context=None,
            )  # fmt: skip

        side = await stack.enter_async_context(sidecar(up.port, routing=routing, **sections))
        whole = Split(1, 8, 1.0, 7, MODEL, url)
        page.write(Split(1, 8, share, 7, MODEL, url))
        found = Routed(side, page, whole)
        yield found
