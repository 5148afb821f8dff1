"""What a reward function may return."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from slipstream_client.training.rewards import Reward, as_function, checked


@pytest.mark.parametrize("outcome", [1, 0.5, Fraction(1, 2), np.float32(0.5), np.int64(1)])
def test_a_number_is_a_reward(outcome: Any) -> None:
    reward = checked(outcome)
    assert reward == Reward(float(outcome))
    assert type(reward.value) is float


@pytest.mark.parametrize("outcome", [Reward(1, {"a": np.float64(0.5)}), (1, {"a": 0.5})])
def test_a_reward_may_have_a_breakdown(outcome: Any) -> None:
    assert checked(outcome) == Reward(1.0, {"a": 0.5})


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        (math.nan, "reward"),
        (-math.inf, "reward"),
        (np.float32("nan"), "reward"),
        (True, "reward"),
        (np.True_, "reward"),
        ("0.5", "reward"),
        (None, "reward"),
        ([0.5], "reward"),
        ((0.5, 0.5), "breakdown"),
        ((0.5, {"part": math.nan}), "breakdown.part"),
        (Reward(0.5, {"part": False}), "breakdown.part"),
        (Reward(math.inf), "reward"),
    ],
)
def test_what_is_no_finite_number_is_refused_by_its_name(outcome: Any, named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}: expected a"):
        checked(outcome)


def test_a_reward_is_a_function_or_has_calculate() -> None:
    class Calculator:
        def calculate(self, run: Any) -> float:
            return 0.5

    assert as_function(None) is None
    assert as_function(len) is len
    calculator = Calculator()
    assert as_function(calculator) == calculator.calculate
    for wrong in (0.5, Calculator):
        with pytest.raises(TypeError, match=r"^reward: expected a function"):
            as_function(wrong)  # type: ignore[arg-type]
