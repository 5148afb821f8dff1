"""A retry of the openai SDK comes into the task of the attempt before, and no other user's call does."""

from __future__ import annotations

from typing import Any

import pytest
from captured_chats import Message, assistant, completion, exchange, read_call, user

from slipstream.capture.completion import CapturedCall
from slipstream.capture.conversations import Conversations
from slipstream.capture.place import Place
from slipstream.capture.retries import Retries


def attempt(text: str, retry: int = 0, at: float = 0.0, **fields: Any) -> CapturedCall:
    return of([user(text)], retry, at, **fields)


def of(
    messages: list[Message], retry: int = 0, at: float = 0.0, said: str = "hello", session: bytes = b""
) -> CapturedCall:
    """A call that takes half a second."""
    headers = [(b"x-stainless-retry-count", str(retry).encode())]
    call = read_call(
        exchange(
            request={"model": "m", "messages": messages},
            answer=completion(assistant(said)),
            request_headers=headers + ([(b"x-slipstream-session-id", session)] if session else []),
            started_at=at,
        )
    )
    assert isinstance(call, CapturedCall)
    return call


class Capture:
    """Places calls as the recorder does."""

    def __init__(self, limit: int = 10, window: float = 900.0) -> None:
        self.now = 0.0
        self._retries = Retries(limit, window, clock=lambda: self.now)
        self._conversations = Conversations(100)

    def place(self, call: CapturedCall) -> Place:
        before = self._retries.earlier(call)
        place = self._conversations.place(call) if before is None else self._conversations.again(call, before.place)
        self._retries.add(call, place)
        return place


def test_a_retry_is_in_the_task_of_the_attempt_before_and_the_conversation_goes_on_from_its_answer() -> None:
    capture = Capture()
    first = capture.place(attempt("hi", said="not heard"))
    for retry in (1, 2):
        again = capture.place(attempt("hi", retry, at=retry, said=f"heard {retry}"))
        assert (again, again.new_task) == (first, False)
    after = capture.place(of([user("hi"), assistant("heard 2"), user("more")], at=9.0))
    assert (after.session_id, after.new_task) == (first.session_id, True)


def test_only_what_says_so_is_a_retry_and_an_attempt_counts_once() -> None:
    capture = Capture()
    mine, other = capture.place(attempt("hi")), capture.place(attempt("hi", at=0.1))
    assert mine.session_id != other.session_id, "another user who asks the same"
    retries = [capture.place(attempt("hi", 1, at=2.0 + place)) for place in range(3)]
    assert retries[:2] == [other, mine]
    assert retries[2] not in (mine, other), "its own first attempt was refused"


@pytest.mark.parametrize(
    ("text", "retry", "at"), [("ho", 1, 9.0), ("hi", 1, 0.4), ("hi", 0, 9.0)], ids=["words", "while it ran", "first"]
)
def test_a_call_of_its_own(text: str, retry: int, at: float) -> None:
    capture = Capture()
    first = capture.place(attempt("hi"))
    assert capture.place(attempt(text, retry, at)).session_id != first.session_id


def test_a_conversation_that_went_on_has_got_its_answer() -> None:
    capture = Capture()
    first = capture.place(attempt("hi"))
    capture.place(of([user("hi"), assistant("hello"), user("more")], at=1.0))
    assert capture.place(attempt("hi", 1, at=2.0)).session_id != first.session_id


def test_a_named_session_may_have_calls_at_the_same_time() -> None:
    capture = Capture()
    first = capture.place(attempt("hi", session=b"s"))
    other = capture.place(attempt("ho", session=b"s"))
    assert [capture.place(attempt(text, 1, at=2.0, session=b"s")) for text in ("hi", "ho")] == [first, other]


def test_in_a_conversation_that_the_provider_holds_the_same_words_come_again() -> None:
    def in_conversation(text: str, retry: int, at: float) -> CapturedCall:
        return attempt(text, retry, at)._replace(session_id="conv_1", session_named=False)

    capture = Capture()
    first = capture.place(in_conversation("go on", 0, 0.0))
    capture.place(in_conversation("wait", 0, 1.0))
    assert capture.place(in_conversation("go on", 1, 2.0)).task_id != first.task_id, "its own first attempt failed"
    assert capture.place(in_conversation("go on", 2, 3.0)).session_id == "conv_1"


def test_a_retry_is_recognised_within_the_window() -> None:
    capture = Capture(window=60.0)
    first = capture.place(attempt("hi"))
    capture.now = 60.0
    assert capture.place(attempt("hi", 1, at=60.0)) == first
    capture.now = 120.5
    assert capture.place(attempt("hi", 2, at=120.5)) != first


def test_the_oldest_are_forgotten_first() -> None:
    capture = Capture(limit=2)
    a, _, c = [capture.place(attempt(text)) for text in ("a", "b", "c")]
    assert capture.place(attempt("c", 1, at=2.0)) == c
    assert capture.place(attempt("a", 1, at=2.0)) != a
