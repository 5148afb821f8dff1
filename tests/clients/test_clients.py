"""Agents of other people's packages, each in an environment of its own: `make clients` installs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from matrix.client import Client, clients
from matrix.trial import LATE, STREAMS, Grouping, tried

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("client", clients(), ids=lambda client: client.name)
async def test_an_agent_s_calls_are_one_task_that_is_run_and_its_streams_are_captured_whole(
    client: Client, tmp_path: Path
) -> None:
    assert client.installed, "not installed: run `make clients`"
    outcome = await tried(client, tmp_path)
    assert outcome.groupings == dict.fromkeys(client.modes, Grouping(client.calls, tasks=1, sessions=1))
    assert outcome.run == client.calls * len(client.modes)
    assert outcome.streams == (dict.fromkeys(LATE, STREAMS) if "stream" in client.modes else {})
