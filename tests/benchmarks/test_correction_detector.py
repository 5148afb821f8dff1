"""The measurement of the detector of corrections, on the messages that its figures in the docs are of."""

from __future__ import annotations

from pathlib import Path

from corrections.detector import count, part, read

DOCS = Path(__file__).parents[2] / "docs" / "corrections.md"


def test_few_messages_are_taken_for_corrections_by_mistake_and_the_docs_say_how_many_are_found() -> None:
    tuned, unseen = read("tuned"), read("unseen")
    assert len(tuned) + len(unseen) > 300
    assert not {each.message for each in tuned} & {each.message for each in unseen}
    found = count(unseen, 0.5)
    assert found.false_alarms <= 1
    assert found.hits >= 25
    assert part(0.5) in DOCS.read_text()
