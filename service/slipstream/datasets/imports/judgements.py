"""Judgements of other programs as scores and thumbs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipstream.datasets.imports.conversation import Score

_LARGEST = 2**53
"""Scores beyond it are none."""

_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("up", "thumbs_up", "👍", "good", "correct", "yes", "true", "positive", "like", "liked"), "up"),
    **dict.fromkeys(("down", "thumbs_down", "👎", "bad", "incorrect", "no", "false", "negative", "dislike"), "down"),
}
"""Labels of judgements that are thumbs."""


def scores(name: str, value: Any, comment: Any) -> Iterator[Score]:
    """Yield the judgements that a value stands for, or a list of them: a number, or a thumb for a truth value and for
    words that say yes or no. Other words are none."""
    said = comment if isinstance(comment, str) and comment else None
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, bool):
            yield Score(name, thumbs="up" if each else "down", comment=said)
        elif isinstance(each, int | float) and abs(each) < _LARGEST:
            yield Score(name, float(each), comment=said)
        elif isinstance(each, str) and (word := each.strip().lower().replace("-", "_").replace(" ", "_")) in _WORDS:
            yield Score(name, thumbs=_WORDS[word], comment=said)


def chosen(given: Sequence[Score], name: str | None) -> Score | None:
    """Return the judgement of an answer that counts, the last of its name; None if there is none, or if several names
    are given and the user chose none of them.

    Args:
        name: that the user chose.
    """
    if name is not None:
        given = [score for score in given if score.name == name]
    return given[-1] if given and len({score.name for score in given}) == 1 else None
