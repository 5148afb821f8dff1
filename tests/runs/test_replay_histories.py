"""What is in memory of the calls of open runs."""

from __future__ import annotations

from pathlib import Path

from captured_chats import assistant, completion, user

from slipstream.jsontext import to_json
from slipstream.runs.replay_histories import AsAsked, ReplayHistories
from slipstream.store.database import Database


def call(text: str, instructed: bool = False) -> AsAsked:
    messages = [user("instructions"), user(text)] if instructed else [user(text)]
    return AsAsked(to_json({"messages": messages}), to_json(completion(assistant("yes"))), instructed)


async def said(histories: ReplayHistories, run_pk: int, msg_id: str) -> str | None:
    """What the user of a call said, where it is known."""
    before = await histories.earlier(run_pk, msg_id)
    return None if before is None else before.held.messages[0]["content"]


async def test_calls_are_known_until_their_run_is_over_or_there_is_no_room(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    try:
        room = 500 + sum(map(len, call("a")[:2]))
        histories = ReplayHistories(database, as_asked=True, hooked=False, limit=3 * room)
        for number, text in enumerate("abc"):
            histories.add(number // 2, text, call(text), now=float(number))
        assert [await said(histories, run, text) for run, text in ((0, "a"), (0, "b"), (1, "c"))] == ["a", "b", "c"]
        assert await said(histories, 1, "a") is None, "another run's"
        histories.add(1, "d", call("d"), now=3.0)
        assert [await said(histories, run, text) for run, text in ((0, "a"), (0, "b"), (1, "d"))] == [None, "b", "d"]
        histories.forget(0)
        assert [await said(histories, run, text) for run, text in ((0, "b"), (1, "c"))] == [None, "c"]
        histories.forget_before(3.0)
        assert await said(histories, 1, "c") == "c", "its run has made a call since"
        histories.forget_before(3.5)
        assert (await said(histories, 1, "c"), histories._left, histories._of_run) == (None, 3 * room, {})
        histories.add(2, "e", call("e", instructed=True), now=4.0)
        histories.add(2, "e", call("f"), now=4.0)
        assert (await said(histories, 2, "e"), histories._left) == ("f", 2 * room)
    finally:
        await database.close()
