"""The right tool among many, by a learned map."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.embedded.tool_retrieval import Fit, Projection, ToolIndex, fit, recall_at, whitening, word_vectors

pytestmark = pytest.mark.slow

ACTIONS = ("open", "close", "paint", "sell", "repair", "weigh", "photograph", "insure")
OTHER_WORDS = ("unlock", "shut", "colour", "vend", "mend", "heft", "shoot", "cover")
THINGS = tuple(f"thing{number}" for number in range(12))


def tool(name: str, description: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {}}}


def test_other_words_for_the_same_are_learned() -> None:
    tools = [f"{action} the {thing}" for action in ACTIONS for thing in THINGS]
    requests = [f"{other} my {thing}" for other in OTHER_WORDS for thing in THINGS]
    places = list(range(len(tools)))
    training = [place for place in places if place % len(THINGS) < 8]  # the other things are held out
    offered, asked = word_vectors(tools), word_vectors(requests)
    before = whitening(offered, 256)
    after = fit(
        before,
        asked[training],
        offered[training],
        list(range(len(training))),
        Fit(epochs=60, learning_rate=0.1),
    )
    held_out = [place for place in places if place not in training]

    first, then = (recall_at(mapped(asked[held_out]), mapped(offered), held_out, (1, 5)) for mapped in (before, after))
    assert first[1] < 0.3
    assert then[1] > first[1] + 0.3
    assert then[5] >= then[1]


def test_a_thousand_tools_are_searched() -> None:
    tools = [tool(f"get_item_{number}", f"Get the item {number}") for number in range(1000)]
    tools.append(tool("sendEmail", "Write to a person"))
    index = ToolIndex(tools, word_vectors)

    assert index.search("send an email to Ann", 1) == [tools[-1]]
    assert len(index.search("item 7", 3)) == 3


def test_tools_that_are_equally_near_do_not_count_as_found() -> None:
    assert recall_at(np.ones((1, 2), np.float32), np.ones((4, 2), np.float32), [0], (1, 3, 4)) == {1: 0, 3: 0, 4: 1}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found \(2, 3\), \(1, 3\) and places of 1 tools"):
        fit(Projection(np.zeros(3), np.eye(3)), np.ones((2, 3), np.float32), np.ones((1, 3), np.float32), [0, 0])
