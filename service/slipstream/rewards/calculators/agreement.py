"""The `agreement` calculator: how much the policy's answer is like production's, in any language."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import ClassVar

from slipstream.rewards.calculator import UNIT, Bounds, PlainCalculator, Share
from slipstream.rewards.registry import calculator
from slipstream.rewards.tool_use import made, policy_tool_calls, production_calls, tool_f1
from slipstream.trajectory import Run, message_text

_ORDERS = (2, 3)  # two characters are about one Chinese word; three tell English texts apart, two alone do not


def texts_alike(left: str, right: str) -> float:
    """F1 of character n-grams, from 0 to 1; linear in the texts' lengths.

    After chrF (Popović, 2015), without its word n-grams and with orders 2 and 3. It needs no tokenizer, so Chinese and
    English count alike. An edit distance would not do: unrelated English texts already share about half of their
    letters in order.
    """
    left, right = _plain(left), _plain(right)
    if left == right:
        return 1.0
    return sum(_f1(left, right, order) for order in _ORDERS) / len(_ORDERS)


def _plain(text: str) -> str:
    # The spaces around let even one character have n-grams.
    return f" {' '.join(unicodedata.normalize('NFKC', text).casefold().split())} "


def _f1(left: str, right: str, order: int) -> float:
    ours, theirs = (Counter(text[i : i + order] for i in range(len(text) - order + 1)) for text in (left, right))
    return 2 * (ours & theirs).total() / max(1, ours.total() + theirs.total())


@calculator("agreement")
class Agreement(PlainCalculator):
    """Likeness of the answers: their last texts, and their tool calls if either made any; the mean of the two.

    With `with_feedback`, an answer of production's that users disliked (its newest reward is below `like_from`) is one
    to differ from: the reward is then 1 less the likeness.
    """

    bounds: ClassVar[Bounds | None] = UNIT
    interprets: ClassVar[bool] = True

    argument_share: Share = 0.5
    with_feedback: bool = False
    like_from: Share = 0.5

    def calculate(self, run: Run) -> float:
        likeness = self._likeness(run)
        rated = [feedback.reward for feedback in run.production_feedback if feedback.reward is not None]
        disliked = self.with_feedback and rated and rated[-1] < self.like_from
        return 1 - likeness if disliked else likeness

    def _likeness(self, run: Run) -> float:
        production = production_calls(run)
        text = message_text(production[-1].message)
        ours, theirs = policy_tool_calls(run), made([call.message for call in production])
        if not ours and not theirs:
            return texts_alike(run.text, text)
        tools = tool_f1(ours, theirs, self.argument_share)
        # Where production only called tools, words beside the calls are no disagreement.
        return (tools + texts_alike(run.text, text)) / 2 if text.strip() else tools
