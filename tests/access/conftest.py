from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from guarded import ROLES, Guarded, Kept, RunGuarded
from loops import RunLoop
from scripted import ScriptedExplorer, production_app
from serving import serving

from slipstream.access.keys import as_hash, new_key


@pytest.fixture
def run_guarded(run_loop: RunLoop) -> RunGuarded:
    """Start a sidecar with a key of each role; sections as for `run_loop`, `access` over the keys."""

    @asynccontextmanager
    async def start(explorer: ScriptedExplorer | None = None, /, **sections: Any) -> AsyncIterator[Guarded]:
        keys, production = {role: new_key() for role in ROLES}, Kept()
        made = [{"name": role, "roles": [role], "hash": as_hash(keys[role])} for role in ROLES]
        sections["access"] = {"keys": made, **sections.get("access", {})}
        async with serving(production.wrap(production_app())) as url:
            sections["production"] = {"base_url": f"{url}/v1", **sections.get("production", {})}
            async with run_loop(explorer or ScriptedExplorer(), **sections) as loop:
                yield Guarded(loop, keys, production)

    return start
