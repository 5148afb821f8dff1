"""Fixtures for tests of the whole sidecar: real HTTP on both sides of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from loops import Loop, RunLoop
from scripted import ScriptedExplorer, production_app
from serving import serving

from slipstream.app import create_app
from slipstream.config.settings import Settings


@pytest.fixture
def run_loop(tmp_path: Path) -> RunLoop:
    """Start the whole loop with settings given as sections: `run_loop(runs={"repeat_time": 2})`.

    Everything is selected, and each run gets the reward 0.5, unless a section says otherwise. The store stays in the
    test's folder, so that a second start finds what the first one left. A scripted Explorer of one's own goes first.
    """

    @asynccontextmanager
    async def start(explorer: ScriptedExplorer | None = None, /, **sections: Any) -> AsyncIterator[Loop]:
        explorer = explorer or ScriptedExplorer()
        async with serving(production_app()) as production_url, serving(explorer.app()) as explorer_url:
            settings = Settings.model_validate(
                {
                    "store": {"url": f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"},
                    "selection": {"sampling": {"rate": 1.0}},
                    "rewards": {"calculators": [{"constant": {"value": 0.5}}]},
                    "commit": {"interval": "1h"},
                    **sections,
                    "production": {"base_url": f"{production_url}/v1", **sections.get("production", {})},
                    "explorer": {
                        "base_url": explorer_url,
                        "poll_interval": "50ms",
                        **sections.get("explorer", {}),
                    },
                }
            )
            async with (
                serving(create_app(settings)) as url,
                httpx.AsyncClient(base_url=url, timeout=30) as client,
            ):
                yield Loop(url, explorer, client)

    return start
