"""Conversations that the provider holds and that have an id of their own, in memory."""

from __future__ import annotations

from typing import Any

from captured_chats import MAX_BODY, exchange
from contexts import parse_memory

from slipstream.capture.completion import CapturedCall
from slipstream.capture.completion import read_call as read
from slipstream.capture.conversations import Conversations
from slipstream.capture.histories import Histories, Items, Newest
from slipstream.capture.place import Place
from slipstream.capture.redacted import ExchangeRedactor, RedactedExchange
from slipstream.redaction.redactor import Redactor


class Capture:
    """Reads calls of the Responses API one after the other, as the recorder does."""

    def __init__(self, limit: int = 10) -> None:
        self._histories = Histories(Items(), Newest(limit))
        self._conversations = Conversations(100)
        self._redactor = ExchangeRedactor(Redactor([]), MAX_BODY, parse_memory())
        self.messages: list[Any] = []
        """The chat messages of the newest call."""

    def read(self, number: int, given: Any, *, session: bytes | None = None, **fields: Any) -> tuple[Place, str | None]:
        """The place of a call and its problem."""
        part = {"type": "output_text", "text": "yes", "annotations": []}
        said = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [part]}
        headers = [(b"x-slipstream-session-id", session)] if session else []
        answer = {"id": f"resp_{number}", "status": "completed", "output": [said]}
        asked = {"model": "m", "input": given, **fields}
        kept = self._redactor.redact(
            exchange(request=asked, answer=answer, path="/v1/responses", request_headers=headers)
        )
        assert isinstance(kept, RedactedExchange)
        call = read(kept, self._histories)
        assert isinstance(call, CapturedCall)
        place = self._conversations.place(call, None if call.history is None else self._histories.earlier(call.history))
        self._histories.add(call, place)
        self.messages = call.request["messages"]
        return place, call.problem


def test_a_conversation_names_its_session_unless_a_header_does() -> None:
    capture = Capture()
    for number, (fields, expected) in enumerate((
        ({"conversation": "conv_1"}, "conv_1"),
        ({"conversation": {"id": "conv_1"}}, "conv_1"),
        ({"conversation": "conv_1", "session": b"mine"}, "mine"),
        ({"conversation": {"id": "conv_2"}}, "conv_2"),
    )):  # fmt: skip
        place, problem = capture.read(number, "hi", **fields)
        assert (place.session_id, problem) == (expected, "history_unseen")
    for odd in ("", {}, {"id": 1}, 7, "x" * 65):
        place, _ = capture.read(9, "hi", conversation=odd)
        assert len(place.session_id) == 32, "made here"


def test_a_call_goes_on_with_the_task_of_the_newest_call_of_its_conversation() -> None:
    capture, result = Capture(), {"type": "function_call_output", "call_id": "c", "output": "42"}
    first, _ = capture.read(1, "hi", conversation="conv_1")
    other, _ = capture.read(2, "hi", conversation="conv_2")
    after, _ = capture.read(3, [result], conversation="conv_1")
    new, _ = capture.read(4, "and now?", conversation="conv_1")
    assert after.task_id == first.task_id
    assert len({first.task_id, other.task_id, new.task_id}) == 3
    assert capture.read(5, [result], conversation="conv_1")[0].task_id == new.task_id
    assert capture.read(6, [result], previous_response_id="resp_1")[0].task_id == first.task_id


def test_a_conversation_does_not_grow_with_its_calls() -> None:
    capture, result = Capture(), {"type": "function_call_output", "call_id": "c", "output": "42"}
    first, _ = capture.read(0, "begin", conversation="conv_1", instructions="be short")
    sizes = []
    for number in range(1, 20):
        place, problem = capture.read(number, [result], conversation="conv_1", instructions="be short")
        assert (place.task_id, problem) == (first.task_id, "history_unseen")
        assert [message["role"] for message in capture.messages[-2:]] == ["assistant", "tool"]
        sizes.append(len(capture.messages))
    assert (sizes[0], sizes[-1]) == (5, 11)
    assert capture.messages[1] == {"role": "system", "content": [{"id": "conv_1"}]}
    for number in range(20, 40):
        capture.read(number, "more", previous_response_id=f"resp_{number - 1}" if number > 20 else None)
    assert len(capture.messages) == 39, "a chain of answers is whole"


def test_conversations_of_which_nothing_was_heard_for_longest_are_forgotten() -> None:
    newest = Newest(2)
    for name in ("a", "b", "a", "c"):
        newest.add(name, f"answer of {name}")
    assert [newest.answer(name) for name in ("a", "b", "c")] == ["answer of a", "b", "answer of c"]
