"""Figures of all judgements: counts, the influence of the order, agreement, and a ranking."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slipstream.preferences.agreement import agreement
from slipstream.preferences.ranking import strengths
from slipstream.preferences.resampling import resampled
from slipstream.serving.page import PRODUCTION
from slipstream.store.preference_figures import Judgement
from slipstream.store.preferences import Choice, Side, side

_Wins = Mapping[tuple[str, str], float]


def figures(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """The figures of these judgements. It takes a while for many, and is done in a thread."""
    return {
        "judgements": {choice: sum(each.choice is choice for each in judgements) for choice in Choice},
        "annotators": _annotators(judgements),
        "position": _position(judgements),
        "agreement": _agreement(judgements),
        **_ranking(judgements),
    }


def _annotators(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Judgements of each annotator, those that she skipped among them, and how often she chose what came first."""
    by_name: dict[str, list[Judgement]] = {}
    for each in judgements:
        by_name.setdefault(each.annotator, []).append(each)
    return [
        {"annotator": name, "judgements": len(some), "first_chosen": _first_chosen(some)}
        for name, some in sorted(by_name.items())
    ]


def _first_chosen(judgements: Iterable[Judgement]) -> float | None:
    chosen = [each.choice for each in judgements if each.choice in (Choice.A, Choice.B)]
    return chosen.count(Choice.A) / len(chosen) if chosen else None


def _position(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """The part of the decided judgements that chose the answer shown first: half, if the order has no influence."""
    sessions: dict[str, Counter[str]] = {}
    for each in judgements:
        if each.choice in (Choice.A, Choice.B):
            sessions.setdefault(each.session_ref, Counter())[each.choice] += 1
    decided = sum(some.total() for some in sessions.values())
    if not decided:
        return {"decided": 0, "first_chosen": None, "interval": None}

    def first(drawn: Sequence[Counter[str]]) -> dict[str, float]:
        return {"first": sum(each["a"] for each in drawn) / sum(each.total() for each in drawn)}

    imagined = [Counter({"a": 1}), Counter({"b": 1})]
    ends = resampled([*sessions.values(), *imagined], first)["first"]
    return {"decided": decided, "first_chosen": _first_chosen(judgements), "interval": list(ends)}


def _agreement(judgements: Sequence[Judgement]) -> dict[str, Any]:
    pairs: dict[str, list[Side]] = {}
    for each in judgements:
        if (preferred := side(each.choice, swapped=each.swapped)) is not None:
            pairs.setdefault(each.pair_id, []).append(preferred)
    found = agreement(pairs.values())
    return {"alpha": found.alpha, "pairs": found.units}


def _ranking(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """All who answered, the strongest first, and the one that has the strength 0."""
    sessions: dict[str, Counter[tuple[str, str]]] = {}
    counted: Counter[str] = Counter()
    for each in judgements:
        preferred = side(each.choice, swapped=each.swapped)
        if preferred is None or each.left == each.right:
            continue
        won = sessions.setdefault(each.session_ref, Counter())
        counted.update((each.left, each.right))
        left = {Side.LEFT: 1.0, Side.RIGHT: 0.0}.get(preferred, 0.5)
        won[each.left, each.right] += left  # type: ignore[assignment]
        won[each.right, each.left] += 1 - left  # type: ignore[assignment]
    if not counted:
        return {"reference": None, "ranking": []}
    reference = PRODUCTION if PRODUCTION in counted else counted.most_common(1)[0][0]
    wins = _sum(sessions.values())
    found = strengths(wins, reference)
    # A version that never lost would have an interval without width, however few judgements there are: imagined
    # sessions, one for each result that two who were compared can have, are drawn with the real ones.
    drawn_from: list[_Wins] = [*sessions.values(), *({pair: 1.0} for pair in sorted(wins))]
    ends = resampled(drawn_from, lambda drawn: strengths(_sum(drawn), reference, found))
    ranked = sorted(counted, key=lambda name: (name not in found, -found.get(name, 0.0), name))
    return {
        "reference": reference,
        "ranking": [
            {
                "answered_by": name,
                "judgements": counted[name],
                "strength": found.get(name),
                "interval": list(ends[name]) if name in found else None,
                "wins_against_reference": 1 / (1 + math.exp(-found[name])) if name in found else None,
            }
            for name in ranked
        ],
    }


def _sum(sessions: Iterable[_Wins]) -> _Wins:
    wins: dict[tuple[str, str], float] = {}
    for each in sessions:
        for pair, won in each.items():
            wins[pair] = wins.get(pair, 0.0) + won
    return wins
