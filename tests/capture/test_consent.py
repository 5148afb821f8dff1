"""Who says that a call is not to be captured has no byte of it stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from loops import RunLoop
from on_disk import holds
from serving import until

from slipstream.http.headers import Headers
from slipstream.proxy.consent import may_capture

MARKER = "3f2c77-otter"


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ([(b"accept", b"*/*"), (b"x-slipstream-task-id", b"t")], True),
        ([(b"x-slipstream-capture", b"never")], False),
        ([(b"X-Slipstream-Capture", b" Never ")], False),
        ([(b"x-slipstream-capture", b"nevre")], False),
        ([(b"x-slipstream-select", b"never")], False),
        ([(b"x-slipstream-select", b"always")], True),
        ([(b"x-slipstream-select", b"always"), (b"X-Slipstream-Select", b"Never")], False),
    ],
    ids=["silent", "never", "spelt-in-capitals", "misspelt", "select-never", "select-otherwise", "both"],
)
def test_consent(headers: Headers, allowed: bool) -> None:
    assert may_capture(headers) is allowed
    assert not may_capture(headers, key=False), "a key that says no has the last word"


async def test_a_call_that_is_not_to_be_captured_leaves_no_byte_in_the_store(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop() as loop:
        said = {"x-slipstream-session-id": MARKER, "x-slipstream-metadata": f'{{"name": "{MARKER}"}}'}
        await loop.chat(f"I am {MARKER}", {"x-slipstream-capture": "never", **said})
        await loop.chat("I am somebody", {"x-slipstream-task-id": "kept"})
        await until(lambda: loop.ready(1))
        assert (await loop.status())["tasks"] == {"complete": 1}
        assert holds(tmp_path, "I am somebody"), "a body that is stored is found"
        assert not holds(tmp_path, MARKER)
    assert not holds(tmp_path, MARKER)


async def test_store_false_is_no_wish_of_the_user_s_where_the_operator_says_so(run_loop: RunLoop) -> None:
    async with run_loop(capture={"store_false": "keep"}) as loop:
        await loop.chat("of an agent that holds the conversation itself", store=False)
        await loop.chat("mine alone", {"x-slipstream-capture": "never"}, store=False)
        await until(lambda: loop.ready(1))
        assert [chat["messages"][0]["content"] for chat in loop.explorer.chats] == [
            "of an agent that holds the conversation itself"
        ]
