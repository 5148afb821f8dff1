"""Receivers of webhooks over real HTTP: told at least once, each for itself, and given up after a day."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from authorities import Authority
from contexts import WokenStages, context
from ports import free_port
from prometheus_client import CollectorRegistry
from receiving import SECRET, Receiver
from serving import serving, until

from slipstream.capture.retention import Retention
from slipstream.metrics import Metrics
from slipstream.notifications.stage import Notifier, pause_after
from slipstream.store import outbox
from slipstream.store import serving as store_serving
from slipstream.store.database import Database

NOW = 1_000_000.0
DAY = 86400.0


class Told:
    """A notifier over a store.

    Attributes:
        now: Unix seconds of its clock.
    """

    def __init__(self, database: Database, receivers: list[dict[str, Any]], **webhooks: Any) -> None:
        self.database = database
        self.now = NOW
        self.metrics = Metrics(CollectorRegistry())
        section = {"receivers": receivers, **webhooks}
        self.context, self.stages = context(database, self.metrics, lambda: self.now, webhooks=section)
        self.notifier = Notifier(self.context)

    async def kill(self) -> None:
        """Have two events."""
        async with self.database.write() as session:
            await store_serving.kill(session, self.now)
            await store_serving.revive(session, self.now)

    async def settled(self) -> None:
        """Run the stage until nothing is on its way and nothing is due."""
        stages = self.stages
        assert isinstance(stages, WokenStages)
        while True:
            stages.woken.clear()
            await self.notifier.step()
            if not self.notifier._active:
                return
            await until(lambda: stages.woken)

    def count(self, receiver: str, outcome: str) -> float:
        labels = {"receiver": receiver, "outcome": outcome}
        return self.metrics.registry.get_sample_value("slipstream_webhook_deliveries_total", labels) or 0.0

    async def waiting(self, receiver: str) -> int:
        async with self.database.read() as session:
            [found] = await outbox.waiting(session, [receiver])
        return found.count


def to(name: str, url: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "url": f"{url}/hook", "secret": SECRET, "allow_private": True, **fields}


@asynccontextmanager
async def told(database: Database, *receivers: dict[str, Any], **webhooks: Any) -> AsyncIterator[Told]:
    made = Told(database, list(receivers), **webhooks)
    await made.context.membership.start()
    try:
        yield made
    finally:
        await made.notifier.aclose()


async def test_one_that_fails_redirects_or_is_away_is_told_again_and_holds_no_other_back(database: Database) -> None:
    good, bad = Receiver(), Receiver(500, 307)
    async with AsyncExitStack() as stack:
        good_url, bad_url = [await stack.enter_async_context(serving(each.app())) for each in (good, bad)]
        away = f"http://127.0.0.1:{free_port()}"
        receivers = (
            to("good", good_url),
            to("bad", bad_url),
            to("away", away),
            to("inner", bad_url, allow_private=False),
        )
        made = await stack.enter_async_context(told(database, *receivers))
        await made.kill()
        await made.settled()
        assert good.types == ["serving.killed", "serving.revived"]
        assert good.told[0] == {
            "type": "serving.killed",
            "timestamp": "1970-01-12T13:46:40.000Z",
            "data": {"version": None, "share": 0.0, "epoch": 1},
        }
        assert bad.told == []
        first = list(bad.ids)
        assert len(set(first)) == 2
        await made.settled()
        assert bad.ids == first, "nothing is due yet"
        async with database.read() as session:
            found = {each.receiver: each for each in await outbox.waiting(session, made.notifier.receivers)}
        assert (found["good"].count, found["good"].error) == (0, None)
        assert (found["bad"].count, found["bad"].error, found["bad"].failing_since) == (2, "HTTP 500", NOW)
        assert "ConnectError" in (found["away"].error or "")
        assert "has the private address 127.0.0.1" in (found["inner"].error or "")
        made.now += 5
        await made.settled()
        assert bad.ids == first * 2, "each try has the id of the event"
        assert bad.types == ["serving.killed", "serving.revived"]
        assert (made.count("bad", "delivered"), made.count("bad", "failed")) == (2, 2)
        await made.notifier.refresh_gauges()
        value = made.metrics.registry.get_sample_value
        assert value("slipstream_webhook_waiting", {"receiver": "away"}) == 2
        assert value("slipstream_webhook_oldest_seconds", {"receiver": "away"}) == 5
        assert value("slipstream_webhook_oldest_seconds", {"receiver": "bad"}) == 0


async def test_one_that_hangs_holds_up_neither_others_nor_the_stage_nor_the_end(database: Database) -> None:
    good, hanging = Receiver(), Receiver()
    hanging.hold.clear()
    async with serving(good.app()) as good_url, serving(hanging.app()) as hanging_url:
        receivers = to("hanging", hanging_url), to("good", good_url)
        async with told(database, *receivers, timeout="1h") as made:
            await made.kill()
            await made.notifier.step()
            await until(lambda: len(good.told) == 1)
            await until(lambda: "good" not in made.notifier._active)
            good.hold.clear()
            await made.notifier.step()
            async with database.write():  # what it says is to be stored, and is before the end
                good.hold.set()
                await until(lambda: "good" in made.notifier._answered)
            assert len(hanging.ids) == 1, "one at a time"
        async with told(database, *receivers, timeout="100ms") as made:  # a start after the end amid a try
            await made.settled()
            assert hanging.ids[0] == hanging.ids[1], "claimed by the process before it"
            assert made.count("hanging", "failed") == 2
            assert hanging.told == []
        hanging.hold.set()
        async with told(database, *receivers) as made:
            made.now += 10
            await made.settled()
            assert made.count("hanging", "delivered") == 2
    assert good.types == ["serving.killed", "serving.revived"]


async def test_after_a_day_an_event_is_dropped_and_counted(database: Database) -> None:
    async with told(database, to("away", f"http://127.0.0.1:{free_port()}")) as made:
        await made.kill()
        for _ in range(3):
            await made.settled()
            made.now += 600
        assert made.count("away", "failed") == 6
        made.now = NOW + DAY
        await made.settled()
        assert made.count("away", "failed") == 6, "it is too old to be told"
        retention = Retention(database, made.metrics, retention=DAY, audit_retention=DAY, clock=lambda: made.now)
        await retention.step()
        assert made.count("away", "dropped") == 2
        assert await made.waiting("away") == 0


async def test_an_event_goes_to_the_receivers_that_are_configured_when_it_is_delivered(database: Database) -> None:
    first, second = Receiver(500, 500), Receiver(secret="another secret")
    async with serving(first.app()) as first_url, serving(second.app()) as second_url:
        async with told(database) as made:
            assert made.notifier.worker is None
            await made.kill()
        async with told(database, to("one", first_url)) as made:
            await made.settled()
        other = to("other", second_url, secret="another secret", events=["serving.revived"])
        async with told(database, to("one", second_url, secret="another secret"), other) as made:
            made.now += 5
            await made.settled()
            assert second.types == ["serving.killed", "serving.revived"], "where that receiver is by now"
            await made.kill()
            await made.settled()
    assert second.types[2:].count("serving.revived") == 2
    assert second.types[2:].count("serving.killed") == 1
    assert first.told == []


async def test_a_receiver_with_an_authority_of_its_own(database: Database, tmp_path: Path) -> None:
    authority = Authority(trustme.CA(), tmp_path)
    files = authority.issue()
    receiver = Receiver()
    async with serving(receiver.app(), ssl_certfile=files["certificate"], ssl_keyfile=files["key"]) as url:
        trusting = to("trusting", url, ca=str(authority.file))
        async with told(database, trusting, to("other", url)) as made:
            await made.kill()
            await made.settled()
            assert (made.count("trusting", "delivered"), made.count("other", "failed")) == (2, 2)


def test_pauses_double_up_to_ten_minutes_and_are_spread() -> None:
    jitter = random.Random(1)
    pauses = [pause_after(attempts, jitter) for attempts in range(200)]
    for attempts, pause in enumerate(pauses):
        longest = min(600, 5 * 2**attempts)
        assert longest / 2 <= pause <= longest
    assert len(set(pauses[10:])) > 100


async def test_what_was_told_and_not_noted_is_told_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least once: the store may be away at the moment at which the receiver has answered."""
    receiver = Receiver()
    async with serving(receiver.app()) as url, told(database, to("ops", url)) as made:
        await made.kill()
        delivered = outbox.delivered
        lost = asyncio.Event()

        async def away(*_: Any) -> None:
            lost.set()
            raise OSError("the store is away")

        monkeypatch.setattr(outbox, "delivered", away)
        await made.notifier.step()
        await until(lambda: lost.is_set() and not made.notifier._active)
        monkeypatch.setattr(outbox, "delivered", delivered)
        await made.settled()
    assert receiver.ids[0] == receiver.ids[1]
    assert receiver.types == ["serving.killed", "serving.killed", "serving.revived"]
