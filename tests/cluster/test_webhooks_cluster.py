"""Sidecars that share a PostgreSQL tell receivers of an event once, also when the one that tells it is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from receiving import SECRET, Receiver
from scripted import ScriptedExplorer
from serving import serving, until
from sidecars_sharing import sidecar_processes
from stores import stored_rows

TELLER = "SELECT name FROM sidecars JOIN webhook_deliveries ON owner = sidecars.id WHERE receiver = 'hanging'"


@pytest.mark.slow
async def test_an_event_is_told_once_and_after_the_death_of_the_teller_by_another(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    good, hanging = Receiver(), Receiver()
    hanging.hold.clear()
    store_url = new_postgres()
    async with serving(good.app()) as url, serving(hanging.app()) as hanging_url:
        to = {"secret": SECRET, "allow_private": True}
        receivers = [
            {"name": "good", "url": f"{url}/hook", **to},
            {"name": "hanging", "url": f"{hanging_url}/hook", "events": ["serving.killed"], **to},
        ]
        webhooks = {"receivers": receivers, "timeout": "10m"}
        async with sidecar_processes(tmp_path, store_url, ScriptedExplorer(), webhooks=webhooks) as members:
            for _ in range(5):
                for member in members:
                    assert (await member.loop.client.post("/serving/kill")).status_code == 200
                    assert (await member.loop.client.post("/serving/revive")).status_code == 200
            await until(lambda: len(good.told) == 20, seconds=60)
            assert len(set(good.ids)) == len(good.ids), "each once"
            assert [each["data"]["epoch"] for each in good.told] == list(range(1, 21)), "in their order"
            assert len(hanging.ids) == 1
            [(name,)] = await stored_rows(store_url, TELLER)
            [teller] = [each for each in members if urlsplit(each.loop.url).port == int(name.rpartition(":")[2])]
            teller.kill()
            await until(lambda: len(hanging.ids) == 2, seconds=30)
            assert hanging.ids[0] == hanging.ids[1], "the event that the dead one was telling"
            hanging.hold.set()
            await until(lambda: len(hanging.told) == 11, seconds=60)
            assert len(set(hanging.ids)) == 10
