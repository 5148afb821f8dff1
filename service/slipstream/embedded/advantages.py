"""Advantage of a reward within its group, as Trinity-RFT 0.6.0 computes it at commit."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from slipstream.embedded.algorithm import OnlineAlgorithm

Step = tuple[str | None, int, float]
"""task_id, run_id and reward of one experience."""

_STD_EPSILON = 1e-6  # Trinity-RFT's default: keeps a group of nearly equal rewards finite


def advantages(algorithm: OnlineAlgorithm, steps: Sequence[Step]) -> list[float] | None:
    """The advantages of one commit's experiences, in their order, or None where the Trainer computes them."""
    if algorithm == "ppo":
        return None
    if algorithm == "multi_step_grpo":
        return run_advantages(steps)
    return group_advantages([(task_id, reward) for task_id, _, reward in steps])


def run_advantages(steps: Sequence[Step]) -> list[float]:
    """Group-relative advantages of runs of several steps (`multi_step_grpo`, with the defaults of its options).

    Args:
        steps: of one commit; those of a run in the order in which it took them, other runs' may lie between them.

    Returns:
        For each step the advantage of its run, whose reward is that of its last step. A run of many steps counts as
        much as one of few when runs are compared.
    """
    rewards = {(task_id, run_id): reward for task_id, run_id, reward in steps}  # the last step's stays
    compared = group_advantages([(task_id, reward) for (task_id, _), reward in rewards.items()])
    of_run = dict(zip(rewards, compared, strict=True))
    return [of_run[task_id, run_id] for task_id, run_id, _ in steps]


def group_advantages(rewards: Sequence[tuple[str | None, float]]) -> list[float]:
    """Group-relative advantages (GRPO, DeepSeekMath, arXiv:2402.03300).

    Args:
        rewards: (task_id, reward) of each run of one commit; those without a task_id are one group.

    Returns:
        (reward - mean) / (standard deviation of the sample + 1e-6) within the group; a group of one has its reward.
    """
    groups: defaultdict[str | None, list[float]] = defaultdict(list)
    for task_id, reward in rewards:
        groups[task_id].append(reward)
    compared = []
    # mean, not fmean: fmean of three times 0.1 is not 0.1, and equal rewards would move the weights
    for task_id, reward in rewards:
        group = groups[task_id]
        if len(group) == 1:
            compared.append(reward)
        else:
            compared.append((reward - statistics.mean(group)) / (statistics.stdev(group) + _STD_EPSILON))
    return compared
