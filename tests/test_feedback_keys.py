"""Feedback of one key is bounded: how much there may be, how much it counts, and who is told of one that stands out."""

from __future__ import annotations

import time
from typing import Any

import pytest
from serving import until
from shared_by_tenants import RunShared
from stores import ON_BOTH_STORES, stored_rows

from slipstream.doctor import live_callers
from slipstream.store import feedback, feedback_views
from slipstream.store.database import Database
from slipstream.store.feedback import NewFeedback
from slipstream.store.feedback_keys import by_key, named_since

BOUNDS = {"per_key": {"rate": 4}, "keys": {"agent-b": {"rate": 2, "weight": 0.5}, "admin": {"weight": 0.0}}}


@ON_BOTH_STORES
async def test_beyond_its_rate_a_key_is_refused_and_what_was_taken_stays(run_shared: RunShared) -> None:
    async with run_shared(feedback=BOUNDS) as shared:

        async def posted(key: str, *msg_ids: str) -> Any:
            return await shared.ask(key, "POST", "/feedback", json={"msg_ids": list(msg_ids), "thumbs": "up"})

        taken = [await posted("backend-a", "a", "b"), await posted("backend-a", "c", "d", "d")]
        assert [each.status_code for each in taken] == [202, 202]
        refused = await posted("backend-a", "e")
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        error = refused.json()["error"]
        assert error["code"] == "feedback_rate"
        assert "(backend-a) may give feedback on 4 answers in any hour (feedback.per_key.rate)" in error["message"]
        assert [len(await shared.targets("backend-a", each)) for each in taken] == [2, 2]
        assert [(await posted("agent-b", name)).status_code for name in "xyz"] == [202, 202, 429]
        assert (await posted("agent-a", "f")).status_code == 202, "another key has its own"
        text = (await shared.ask("metrics", "GET", "/metrics")).text
        assert "slipstream_feedback_refused_total 2.0" in text
        audit = (await shared.ask("admin", "GET", "/audit")).json()["entries"]
        assert len(audit) == 5, "what was refused has written nothing"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("key", "said", "counts_as"),
    [
        ("agent-a", {"thumbs": "up"}, 1.0),
        ("agent-b", {"thumbs": "up"}, 0.75),
        ("agent-b", {"rating": 1}, 0.25),
    ],
)
async def test_a_reward_counts_by_the_weight_of_its_key(
    key: str, said: dict[str, Any], counts_as: float, run_shared: RunShared, store_url: str
) -> None:
    async with run_shared(feedback=BOUNDS) as shared:
        answer = (await shared.chat("agent-b" if key == "agent-b" else "agent-a"))["id"]
        await shared.stored(1)
        receipt = await shared.ask(key, "POST", "/feedback", json={"msg_id": answer, **said})
        found = (await shared.ask(key, "GET", f"/feedback/{receipt.json()['id']}")).json()
        assert found["counts_as"] == counts_as
        assert found["reward"] == {"up": 1.0}.get(said.get("thumbs", ""), said.get("reward", 0.0))
    database = Database(store_url)
    await database.open()
    async with database.read() as session:
        [(given,)] = (await feedback_views.about_calls(session, [1])).values()
    await database.close()
    assert given.reward == counts_as, "what calculators are told"


async def test_feedback_of_a_key_of_weight_0_neither_replaces_nor_hides_anything(
    run_shared: RunShared, store_url: str
) -> None:
    sections: dict[str, Any] = {"rewards": {"calculators": [{"constant": {"value": 0.75}}]}, "runs": {"repeat_time": 2}}
    async with run_shared(feedback=BOUNDS, **sections) as shared, shared.as_("admin") as admin:
        await shared.chat("agent-a")
        await until(lambda: admin.ready(2))
        [(calculated,), (rated,)] = await stored_rows(store_url, "SELECT msg_id FROM runs ORDER BY run_id")

        async def given(key: str, msg_id: str, reward: float) -> str:
            posted = await shared.ask(key, "POST", "/feedback", json={"msg_id": msg_id, "reward": reward})
            receipt: str = posted.json()["id"]
            return receipt

        async def became(receipt: str) -> tuple[float, str, str]:
            found = (await admin.client.get(f"/feedback/{receipt}")).json()
            [target] = found["targets"]
            return found["counts_as"], target["state"], target["matched_to"]

        counts = await given("agent-a", rated, 0.25)
        for msg_id in (calculated, rated):
            assert await became(await given("admin", msg_id, 0.0)) == (0.5, "ignored", "policy")
        assert await became(counts) == (0.25, "matched", "policy")
        await until(lambda: admin.ready(2))
        await admin.commit()
        assert sorted(each["reward"] for each in shared.loop.explorer.trained) == [0.25, 0.75]


@ON_BOTH_STORES
async def test_a_key_that_stands_out_is_named(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    now = time.time()

    async def given(key: str | None, rewards: list[float]) -> None:
        async with database.write() as session:
            for number, reward in enumerate(rewards):
                new = NewFeedback(f"{key}-{number}", "task_id", (f"t{number}",), reward, key=key)
                await feedback.add(session, new, now)

    await given("one", [0.0, 1.0] * 30)
    await given("two", [0.4, 0.5] * 30)
    await given("few", [1.0] * 49)
    async with database.read() as session:
        assert {each.key: each.state for each in await by_key(session, 1.0)} == {
            "few": "too_few", "one": "like_others", "two": "like_others",
        }  # fmt: skip
    await given("liar", [1.0] * 60)
    async with database.read() as session:
        found = await by_key(session, 1.0)
        assert {each.key for each in found if each.state == "stands_out"} == {"liar"}
        assert {each.state for each in await by_key(session, 2.0)} == {"like_others", "too_few"}, "by the range"
        assert await named_since(session, "liar", now - 1) == (60, now)
        assert await named_since(session, "liar", now) == (0, None)
    await database.close()


async def test_it_is_shown_to_operators_and_not_to_a_tenant(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        for key, thumb in (("backend-a", "up"), ("agent-b", "down")):
            for number in range(50):
                await shared.ask(key, "POST", "/feedback", json={"msg_id": f"{key}-{number}", "thumbs": thumb})
        problems = (await shared.ask("admin", "GET", "/status")).json()["problems"]
        [told] = [each for each in problems if each["code"] == live_callers.FEEDBACK_STANDS_OUT.code]
        assert "agent-b gives 0.00 on average (50 posts), others 1.00" in told["found"]
        assert (await shared.ask("admin-a", "GET", "/status")).json()["problems"] == []
        text = (await shared.ask("metrics", "GET", "/metrics")).text
        assert 'slipstream_feedback_keys{state="stands_out"} 2.0' in text
        assert 'slipstream_problems{code="live.feedback_stands_out"} 1.0' in text
