"""One sidecar on a PostgreSQL: nobody else is there to take over from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scripted import ScriptedExplorer
from serving import until
from sidecars_sharing import sidecar_processes

LONGER_THAN_THE_TEST = "10m"


@pytest.mark.slow
async def test_a_training_side_that_its_parent_starts_again_waits_for_no_lease(
    new_postgres: Callable[[], str], tmp_path: Path
) -> None:
    explorer = ScriptedExplorer()
    explorer.hold.clear()
    store = {"lease": LONGER_THAN_THE_TEST}
    async with sidecar_processes(tmp_path, new_postgres(), explorer, count=1, store=store) as [sidecar]:
        await sidecar.loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: explorer.chats, what="its run is under way")
        await sidecar.process.die("training")
        explorer.hold.set()
        await until(lambda: sidecar.loop.ready(1), 30, "its run is sent again")
        assert (await sidecar.loop.commit())["experiences"] == 1
