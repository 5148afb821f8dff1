"""Dialogs with thoughts, calls and results as rows, and what is measured of them."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.datasets.dialog_measures import lexical_diversity, processed
from slipstream.datasets.dialogs import (
    Dialog,
    DialogError,
    Turn,
    messages_of,
    messages_of_text,
    tagged,
    thoughts_of,
    without_thoughts,
)
from slipstream.datasets.row import Provenance, Source
from slipstream.datasets.task_weights import weights_of_shares

ORIGIN = Provenance(task="t", session="s", tenant="default", source=Source.PRODUCTION)
TURNS = (
    Turn("system", "You help."),
    Turn("user", "Is it raining in Rome?"),
    Turn("assistant", "I look it up."),
    Turn("tool", tool_id="weather", arguments={"city": "Rome"}, result="rain"),
    Turn("assistant", "Yes, it is."),
    Turn("user", "Thanks"),
    Turn("assistant", "You are welcome."),
)


def test_each_answer_is_a_row_and_no_result_is_taught() -> None:
    found = processed(Dialog(TURNS, dialog_id="d"), ORIGIN)

    assert [len(row.prompt) for row in found.rows] == [2, 4, 6]
    call, answer, last = (row.answer for row in found.rows)
    assert call["content"] == "<think>I look it up.</think>"
    assert call["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert (answer["content"], last["content"]) == ("Yes, it is.", "You are welcome.")
    assert {row.answer["role"] for row in found.rows} == {"assistant"}
    assert found.rows[1].prompt[-1] == {"role": "tool", "tool_call_id": "call_0", "content": "rain"}
    assert found.rows[0].provenance.labels == ("tool_selection",)


def test_a_text_with_tags_is_read_and_written_again() -> None:
    text = (
        '<think>two at once</think>\n<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>\n'
        "<tool_call>b</tool_call>\n<tool_result>1</tool_result>\n<tool_result>2</tool_result>\nDone."
    )
    found = messages_of_text(text)

    assert [message["role"] for message in found] == ["assistant", "tool", "tool", "assistant"]
    assert [message.get("tool_call_id") for message in found[1:3]] == ["call_0", "call_1"]
    assert messages_of_text(tagged(found)) == found


def test_thoughts_are_told_from_what_is_said() -> None:
    text = "a<think> one </think>b<think>two</think>c<think>never closed"

    assert thoughts_of(text) == ["one", "two"]
    assert without_thoughts(text) == "abc<think>never closed"
    assert without_thoughts("<think>" * 200_000) == "<think>" * 200_000, "in a time in proportion to the text"


def test_calls_one_after_the_other_are_answers_one_after_the_other() -> None:
    turns = (Turn("user", "go"), Turn("tool", tool_id="a", result="1"), Turn("tool", tool_id="b", result="2"))
    found = processed(Dialog(turns), ORIGIN)

    assert [row.answer["tool_calls"][0]["function"]["name"] for row in found.rows] == ["a", "b"]
    assert found.task_type == "multi_step_planning"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>no end", "character 0: expected </think>"),
        ("no begin</think>", "character 8: expected <think> before"),
        ("<tool_result>1</tool_result>", "expected a <tool_call> before"),
        ("<tool_call>{</tool_call>", "tool_call: expected JSON"),
        ('<tool_call>{"name": 1}</tool_call>', "expected a tool's name"),
        ('<tool_call>{"name": "f", "arguments": []}</tool_call>', "expected a tool's name"),
    ],
)
def test_a_text_that_cannot_be_read_says_where(text: str, said: str) -> None:
    with pytest.raises(DialogError, match=said):
        messages_of(Dialog((Turn("user", "go"), Turn("assistant", text)), dialog_id="d7"))


@pytest.mark.parametrize(
    ("turns", "metadata", "said"),
    [
        ((Turn("user", "go"),), {}, "expected a user's turn and an answer"),
        ((Turn("user", "go"), Turn("tool", result="1")), {}, "turn 1: tool_id"),
        ((Turn("robot", "go"),), {}, "turn 0: role: .* found 'robot'"),  # type: ignore[arg-type]
        (TURNS, {"loss": "high"}, "metadata.loss: expected a number, found 'high'"),
    ],
)
def test_a_dialog_that_teaches_nothing_is_refused(turns: Any, metadata: dict[str, Any], said: str) -> None:
    with pytest.raises(DialogError, match=f"dialog d7: .*{said}|dialog d7: {said}"):
        processed(Dialog(turns, metadata=metadata, dialog_id="d7"), ORIGIN)


def test_what_is_measured() -> None:
    given = processed(Dialog(TURNS, metadata={"loss": 2.5, "task_type": "planning"}), ORIGIN, count=len)

    assert (given.loss, given.task_type) == (2.5, "multi_step_planning")
    assert processed(Dialog(TURNS), ORIGIN).loss is None
    assert given.token_length > sum(len(turn.content) for turn in TURNS)


def test_lexical_diversity_does_not_fall_with_the_length() -> None:
    text = " ".join(f"word{number}" for number in range(50))
    assert lexical_diversity("a b a b") == 0.5
    assert lexical_diversity(text) == lexical_diversity(" ".join([text] * 4)) == 1.0
    assert lexical_diversity("吃饭吃饭") == 0.5
    assert lexical_diversity("") == 0.0


def test_tasks_have_their_shares_in_training() -> None:
    shares = {"planning": 0.6, "timing": 0.2, "unseen": 0.2}
    labels = [("planning",)] * 10 + [("x", "timing")] * 70 + [()] * 20
    found = weights_of_shares(labels, shares)

    assert found == pytest.approx({"planning": 6, "timing": 20 / 70})
    assert found["planning"] * 10 == pytest.approx(found["timing"] * 70 * 3)  # 0.6 to 0.2, and the others keep theirs
    assert weights_of_shares([("timing",)] * 3, shares) == {"timing": 1}
    assert weights_of_shares([()], shares) == {}
    with pytest.raises(ValueError, match="above 0 among those of timing"):
        weights_of_shares([("timing",)], {"timing": 0.0})
