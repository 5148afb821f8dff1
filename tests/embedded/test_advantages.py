from __future__ import annotations

import math

import pytest

from slipstream.embedded.advantages import advantages, group_advantages, run_advantages


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([("a", 0.5)], [0.5]),  # alone: its reward
        ([("a", 0.5), ("a", 0.5), ("a", 0.5)], [0.0, 0.0, 0.0]),
        ([(None, 1.0), (None, 0.0)], [0.7071, -0.7071]),  # without a task: one group
        ([("a", 1.0), ("b", 9.0), ("a", 3.0), ("a", 2.0)], [-1.0, 9.0, 1.0, 0.0]),
        ([], []),
    ],
)
def test_group_advantages(rewards: list[tuple[str | None, float]], expected: list[float]) -> None:
    assert group_advantages(rewards) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("size", range(2, 17))
@pytest.mark.parametrize("reward", [0.1, 0.7, 0.9])
def test_equal_rewards_teach_nothing_at_all(reward: float, size: int) -> None:
    assert group_advantages([("t", reward)] * size) == [0.0] * size


def test_each_step_of_a_run_has_the_run_s_advantage() -> None:
    """Three runs worth 1, 0 and 0, of one, three and two steps: a long run does not count more than a short one."""
    steps = [("t", 0, 1.0), ("t", 1, 0.0), ("t", 2, 0.0), ("t", 1, 0.0), ("t", 1, 0.0), ("t", 2, 0.0)]
    best, other = 2 / math.sqrt(3), -1 / math.sqrt(3)

    assert run_advantages(steps) == pytest.approx([best, other, other, other, other, other], abs=1e-4)


def test_a_run_is_worth_what_its_last_step_is() -> None:
    steps = [("t", 0, 0.0), ("t", 1, 0.9), ("t", 0, 1.0), ("t", 1, 0.0), ("other", 0, 0.5), ("other", 0, 0.25)]
    half = 1 / math.sqrt(2)

    assert run_advantages(steps) == pytest.approx([half, -half, half, -half, 0.25, 0.25], abs=1e-4)


def test_the_algorithm_decides_what_is_compared() -> None:
    steps = [("t", 0, 1.0), ("t", 1, 0.0), ("t", 1, 0.0)]

    assert advantages("ppo", steps) is None
    assert advantages("grpo", steps) == group_advantages([("t", 1.0), ("t", 0.0), ("t", 0.0)])
    assert advantages("multi_step_grpo", steps) == run_advantages(steps)
