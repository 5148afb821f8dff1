"""Fixtures for the contract tests: a real sidecar in front of Trinity's real code.

Use `trinity` (an Explorer of the real code), `engine` (the scripted model behind it) and `start_sidecar(trinity)`, or
`start_trinity` for an Explorer with other settings or engines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_sidecar import Sidecar, StartSidecar, StartTrinity
from real_trinity import PYTHON, Installation, RealTrinity
from scripted import production_app
from scripted_engine import ScriptedEngine
from serving import serving, sidecar

from slipstream.settings.sidecar import Settings


def pytest_configure(config: pytest.Config) -> None:
    if not PYTHON.exists():
        pytest.exit("The contract tests need an environment: `make test-trinity` sets it up and runs them.", 2)


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(tmp_path_factory.mktemp("installation"))
    yield installation
    installation.close()


@pytest.fixture
def engine() -> ScriptedEngine:
    """The model behind `trinity`: it answers `worth 0.0` and `worth 1.0` in turn."""
    return ScriptedEngine()


@pytest.fixture
async def start_trinity(installation: Installation, tmp_path: Path) -> AsyncIterator[StartTrinity]:
    """Start an Explorer: `await start_trinity(url_of_an_engine, algorithm="rec")`. It is killed at the test's end."""
    started: list[RealTrinity] = []

    async def start(*engines: str, **settings: Any) -> RealTrinity:
        trinity = RealTrinity(installation, tmp_path / f"trinity-{len(started)}", engines, **settings)
        started.append(trinity)
        await trinity.start()
        return trinity

    yield start
    for trinity in started:
        await trinity.kill()


@pytest.fixture
async def trinity(engine: ScriptedEngine, start_trinity: StartTrinity) -> AsyncIterator[RealTrinity]:
    """An Explorer of the real code with one engine, `engine`."""
    async with serving(engine.app()) as url:
        trinity = await start_trinity(url)
        yield trinity
        await trinity.kill()  # before its engine, which would wait for its connections


@pytest.fixture
def start_sidecar(tmp_path: Path) -> StartSidecar:
    """Start a sidecar in front of an Explorer: `async with start_sidecar(trinity, runs={"repeat_time": 4}) as sidecar`.

    Everything is selected, each call gets a group of two runs, the answers' own worth is the reward, and no commit
    comes unasked, unless a section says otherwise. The store stays in the test's folder, for a second start. `url=`
    names what stands between the sidecar and Trinity.
    """

    @asynccontextmanager
    async def start(trinity: RealTrinity, url: str | None = None, **sections: Any) -> AsyncIterator[Sidecar]:
        async with serving(production_app()) as production_url:
            settings = Settings.model_validate(
                {
                    "store": {"url": f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"},
                    "selection": {"sampling": {"rate": 1.0}},
                    "rewards": {"calculators": [{"python": "worth:reward"}]},
                    **sections,
                    "production": {"base_url": f"{production_url}/v1"},
                    "explorer": {
                        "base_url": url or trinity.url,
                        "poll_interval": "50ms",
                        **sections.get("explorer", {}),
                    },
                    "runs": {"repeat_time": 2, **sections.get("runs", {})},
                    "commit": {"interval": "1h", "on_shutdown": False, **sections.get("commit", {})},
                }
            )
            async with (
                sidecar(settings) as url,
                httpx.AsyncClient(base_url=url, timeout=30) as client,
            ):
                yield Sidecar(url, trinity, client)

    return start
