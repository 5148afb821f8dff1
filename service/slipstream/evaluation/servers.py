"""Servers of the policy that can be asked for a certain version: the Explorer, and the lane.

Each says by its own counters which version it serves. A number that is the same before an answer and after it proves
the answer's version, because the numbers of an Explorer only rise while it runs.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

from slipstream.errors import ExplorerError, ExplorerUnavailable
from slipstream.explorer.client import ExplorerClient
from slipstream.explorer.lane import LaneClient
from slipstream.memory.parsing import ParseMemory
from slipstream.settings.sidecar import Settings
from slipstream.versions.lanes import LaneStep

NAMES = {"explorer": "Explorer", "lane": "lane"}
"""Words for the names of servers."""

InLane = Callable[[], Awaitable[LaneStep | None]]
"""Tells the step that the lane's Explorer is to load, and its version."""


class VersionChanged(Exception):
    """The server serves another version than the one that is evaluated."""


class VersionUnsure(Exception):
    """The server does not say which version it serves."""


class Server(Protocol):
    """Answers with one version at a time."""

    name: str

    async def version(self) -> int | None:
        """Return the version that it serves now by its own counters; None while its engines serve several.

        Raises:
            ExplorerError: it does not answer.
        """

    async def model(self) -> str:
        """Return the name of its model. Raises ExplorerError."""

    def chat(self, request: bytes) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Ask for one chat completion, as `ExplorerClient.chat`."""


class ExplorerServer:
    """The Explorer that trains."""

    name = "explorer"

    def __init__(self, explorer: ExplorerClient) -> None:
        self._explorer = explorer
        self.model = explorer.model
        self.chat = explorer.chat

    async def version(self) -> int | None:
        counters = await self._explorer.counters()
        return counters.version if counters.newest == counters.version else None


class LaneServer:
    """The lane, whose step is a version by the label that Slipstream wrote to its directory."""

    name = "lane"

    def __init__(self, client: LaneClient, chats: ExplorerClient, in_lane: InLane) -> None:
        self._client = client
        self._in_lane = in_lane
        self.model = chats.model
        self.chat = chats.chat

    async def version(self) -> int | None:
        state = await self._client.state(with_step=True)
        if state.error is not None:
            raise ExplorerUnavailable(f"the lane: {state.error}")
        there = await self._in_lane()
        return there.version if there is not None and there.step == state.step else None


async def serves(server: Server, version: int) -> None:
    """Make sure that a server serves this version.

    Raises:
        VersionChanged: it serves another one.
        VersionUnsure: it does not say, or serves several.
    """
    try:
        now = await server.version()
    except ExplorerError as error:
        raise VersionUnsure(f"the {NAMES[server.name]} does not say which version it serves: {error}") from error
    if now is None:
        raise VersionUnsure(f"the {NAMES[server.name]} serves several versions")
    if now != version:
        raise VersionChanged


@asynccontextmanager
async def answer_of(server: Server, version: int, request: bytes) -> AsyncIterator[tuple[dict[str, Any], float]]:
    """Ask for an answer of this version and of no other. Yields it with the seconds that it took, in memory that is
    reserved until the block ends.

    Args:
        request: a chat completion's, in JSON, under the server's name of its model.

    Raises:
        VersionChanged, VersionUnsure: as of `serves`, before the answer or after it.
        ExplorerError: there is no answer.
    """
    await serves(server, version)
    started = time.monotonic()
    async with server.chat(request) as answer:
        latency = time.monotonic() - started
        await serves(server, version)
        yield answer, latency


class Served(NamedTuple):
    """Result of looking for the server of a version.

    Attributes:
        server: that serves it; None if none does.
        told: what each serves, in words.
        sure: each has answered: where none serves the version, it is not served.
    """

    server: Server | None
    told: str
    sure: bool


class PolicyServers:
    """The Explorer and, if there is one that Slipstream writes, the lane."""

    def __init__(self, settings: Settings, explorer: ExplorerClient, in_lane: InLane, parsing: ParseMemory) -> None:
        self._explorer = ExplorerServer(explorer)
        self._lane: LaneServer | None = None
        self._own: tuple[LaneClient | ExplorerClient, ...] = ()
        lane = settings.serving.lane
        if lane is not None and lane.directory is not None:
            client = LaneClient(lane, parsing)
            chats = ExplorerClient(
                lane.base_url.removesuffix("/v1"),
                parsing,
                model=lane.model,
                chat_timeout=settings.runs.timeout,
                connect_timeout=lane.connect_timeout,
            )
            self._own = client, chats
            self._lane = LaneServer(client, chats, in_lane)

    def close(self) -> None:
        """Close the connections to the lane."""
        for client in self._own:
            client.close()

    async def served(self, version: int, *, only_lane: bool = False) -> Served:
        """Look for the server of a version, the Explorer first.

        Args:
            only_lane: the Explorer's version of this number is another training's.
        """
        told, sure = [], True
        servers: tuple[Server | None, ...] = (None if only_lane else self._explorer, self._lane)
        for server in servers:
            if server is None:
                continue
            try:
                now = await server.version()
            except ExplorerError as error:
                told.append(f"the {NAMES[server.name]} did not answer ({error})")
                sure = False
                continue
            if now == version:
                return Served(server, "", sure=True)
            told.append(f"the {NAMES[server.name]} serves {'several' if now is None else now}")
            sure &= now is not None
        return Served(None, "; ".join(told) or "there is no lane, and the Explorer's is another", sure)

    async def current(self) -> int | None:
        """Return the version that the Explorer serves now. Raises ExplorerError."""
        return await self._explorer.version()
