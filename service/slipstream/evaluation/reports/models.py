"""Models that a report asks: each takes a request and gives an answer, or says in words why there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slipstream.errors import ExplorerAway, ExplorerError, ExplorerUnavailable
from slipstream.evaluation.completions import CompletionsAsker, ModelAway, production_asker
from slipstream.evaluation.reports.cases import ReportCase
from slipstream.evaluation.reports.names import Kind, ModelName, ReportError
from slipstream.evaluation.reports.stored import is_replaced, made_at
from slipstream.evaluation.servers import NAMES, PolicyServers, Server, VersionChanged, VersionUnsure, answer_of, serves
from slipstream.explorer.client import ExplorerClient, case_request
from slipstream.memory.parsing import ParseMemory
from slipstream.settings.sidecar import Settings
from slipstream.trajectory import PolicyCall
from slipstream.versions import lanes

_LONGEST_WAIT = 30.0
"""Seconds between two tries, as production's asker waits."""


class ModelFailed(Exception):
    """The model was there and gave no answer to this request; says why. That is worth the lowest value."""


class AskedModel(Protocol):
    """A model that is asked.

    Attributes:
        times: how often it can be asked a case.
    """

    name: ModelName
    times: float

    async def ask(self, case: ReportCase, request: Mapping[str, Any]) -> PolicyCall:
        """Ask once, with tries.

        Raises:
            ModelAway: it is not there.
            ModelFailed: it refuses the request.
            ReportError: its server serves another version by now.
        """

    async def aclose(self) -> None:
        """Close its connections."""


class _Stored:
    """Production by the answers that it gave to users."""

    times = 1.0

    def __init__(self, name: ModelName) -> None:
        self.name = name

    async def ask(self, case: ReportCase, request: Mapping[str, Any]) -> PolicyCall:
        assert case.stored is not None, "a held-out call has its answer"
        return case.stored

    async def aclose(self) -> None:
        """Nothing to close."""


class _Completions:
    """A model of a server of completions."""

    times = math.inf

    def __init__(self, name: ModelName, asker: CompletionsAsker) -> None:
        self.name = name
        self._asker = asker

    async def ask(self, case: ReportCase, request: Mapping[str, Any]) -> PolicyCall:
        assert self.name.model is not None, "its server knows it by a name"
        return await self._asker.ask(request, self.name.model)

    async def aclose(self) -> None:
        await self._asker.aclose()


class _Version:
    """A version of the policy, at a server that says before and after each answer which one it serves."""

    times = math.inf

    def __init__(self, name: ModelName, server: Server, attempts: int) -> None:
        self.name = name
        self._server = server
        self._attempts = attempts

    async def ask(self, case: ReportCase, request: Mapping[str, Any]) -> PolicyCall:
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((ExplorerUnavailable, VersionUnsure)),
                stop=stop_after_attempt(self._attempts),
                wait=wait_random_exponential(multiplier=0.5, max=_LONGEST_WAIT),
                reraise=True,
            ):
                with attempt:
                    return await self._once(request)
        except VersionChanged as error:
            raise ReportError(
                f"{self.name.text}: version {self.name.version} was not served any more by the "
                f"{NAMES[self._server.name]} while it was asked; nothing of it is used"
            ) from error
        except (ExplorerAway, VersionUnsure) as error:
            raise ModelAway(str(error)) from error
        except ExplorerError as error:
            raise ModelFailed(str(error)) from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(self, request: Mapping[str, Any]) -> PolicyCall:
        assert self.name.version is not None, "it has been looked up"
        asked = case_request(request, await self._server.model())
        content = json.dumps(asked).encode()
        async with answer_of(self._server, self.name.version, content) as (answer, latency):
            return PolicyCall(asked, dict(answer), answer["id"], latency, self.name.version)

    async def aclose(self) -> None:
        """Its server belongs to all versions."""


class Models:
    """The models of a report, with their connections.

    Args:
        secret: sent to servers that were named by a URL; empty for none.
        concurrency: answers of each model that are asked for at the same time.
    """

    def __init__(self, settings: Settings, parsing: ParseMemory, secret: str, concurrency: int) -> None:
        self._settings = settings
        self._parsing = parsing
        self._secret = secret
        self._concurrency = concurrency
        self._explorer: ExplorerClient | None = None
        self._servers: PolicyServers | None = None
        self._open: list[AskedModel] = []
        self._made_at: dict[int, float | None] = {}

    async def open(self, name: ModelName, *, stored: bool) -> AskedModel:
        """Return the model of a name, ready to be asked.

        Args:
            stored: the cases have production's answers, which are taken unless a model of production is named.

        Raises:
            ReportError: no server serves this version, or production's model is not named.
            ConfigError, StoreAway: the store, which knows the versions, cannot be read.
        """
        model: AskedModel
        if name.kind is Kind.URL:
            assert name.url is not None, "a URL has one"
            try:
                asker = CompletionsAsker(name.url, self._secret, self._settings, self._concurrency)
            except ValueError as error:
                raise ReportError(f"--model-key-from: expected {error}") from error
            model = _Completions(name, asker)
        elif name.kind is Kind.PRODUCTION:
            model = _Stored(name) if stored and name.model is None else self._production(name)
        else:
            model = await self._version(name)
        self._open.append(model)
        return model

    def _production(self, name: ModelName) -> AskedModel:
        names = {suite.production for suite in self._settings.evaluation.suites} - {None}
        if (known := name.model or (names.pop() if len(names) == 1 else None)) is None:
            raise ReportError("production: expected production:MODEL, since evaluation.suites do not name one model")
        asker = production_asker(self._settings, self._concurrency)
        return _Completions(replace(name, model=known), asker)

    async def _version(self, name: ModelName) -> AskedModel:
        servers = self._policy_servers()
        version = name.version
        if version is None:
            try:
                version = await servers.current()
            except ExplorerError as error:
                raise ReportError(f"policy: the Explorer does not say which version it serves ({error})") from error
            if version is None:
                raise ReportError("policy: the Explorer's engines serve several versions")
        replaced = name.kind is Kind.VERSION and await is_replaced(self._settings, version)
        served = await servers.served(version, only_lane=replaced)
        if served.server is None:
            raise ReportError(
                f"{name.text}: expected version {version} to be served, so that it can be asked; {served.told}"
            )
        try:
            await serves(served.server, version)
        except (VersionChanged, VersionUnsure) as error:
            raise ReportError(f"{name.text}: version {version} was not served any more") from error
        attempts = self._settings.runs.max_attempts
        return _Version(replace(name, version=version), served.server, attempts)

    def _policy_servers(self) -> PolicyServers:
        if self._servers is None:
            settings = self._settings
            self._explorer = ExplorerClient(
                settings.explorer.base_url,
                self._parsing,
                model=settings.explorer.model,
                chat_timeout=settings.runs.timeout,
                connect_timeout=settings.explorer.connect_timeout,
                tls=settings.explorer.tls,
            )
            self._servers = PolicyServers(settings, self._explorer, self._in_lane, self._parsing)
        return self._servers

    async def _in_lane(self) -> lanes.LaneStep | None:
        lane = self._settings.serving.lane
        if lane is None or lane.directory is None:
            return None
        return await lanes.known(lane.directory, self._known_made_at)

    async def _known_made_at(self, version: int) -> float | None:
        """Ask the store once in a report's life: the lane is looked at before each answer and after it. Weights of
        another training that come meanwhile are then of another time than the first, and not the version's."""
        if version not in self._made_at:
            self._made_at[version] = await made_at(self._settings, version)
        return self._made_at[version]

    async def aclose(self) -> None:
        """Close all connections."""
        for model in self._open:
            await model.aclose()
        if self._servers is not None:
            self._servers.close()
        if self._explorer is not None:
            self._explorer.close()
