"""The rollouts as a picture: users' mean reward over time, with the decisions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
from canary import Decision
from users import Answered

mpl.use("Agg")  # no display is needed
from matplotlib import pyplot as plt

_WINDOW = 40  # answers of a moving mean
_SHOWN = ("begin", "advance", "promote", "roll_back")
_COLORS = {"promote": "tab:green", "roll_back": "tab:red"}


def draw(answered: Sequence[Answered], decisions: Sequence[Decision], began: float, path: Path) -> None:
    """Writes a PNG.

    Args:
        began: when the users began to come, Unix seconds.
    """
    figure, axes = plt.subplots(figsize=(11, 5.5), layout="constrained")
    answered = sorted(answered, key=lambda each: each.at)
    axes.plot(*_moving(answered), color="black", linewidth=2.2, label="all users", zorder=4)
    by = sorted({each.by for each in answered})
    for name, color in zip(by, ("0.6", "tab:blue", "tab:orange", "tab:purple"), strict=False):
        own = [each for each in answered if each.by == name]
        axes.plot(*_moving(own), color=color, alpha=0.8, label=f"answered by {name.replace(':', ' ')}")
    shown = [each for each in decisions if each.action in _SHOWN]
    for number, decision in enumerate(shown):
        at, color = (decision.at - began) / 60, _COLORS.get(decision.action, "0.35")
        axes.axvline(at, color=color, linestyle="--", linewidth=1.2)
        words = decision.label if decision.action != "begin" else decision.label.replace("begin to", "begins at")
        axes.annotate(
            words, (at, 1.05 + 0.06 * (number % 4)), fontsize="small", color=color, annotation_clip=False,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, ha="left", zorder=5,
        )  # fmt: skip
    axes.set(xlabel="minutes", ylabel=f"reward, moving mean of {_WINDOW} answers", ylim=(-0.03, 1.3))
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_title("Users' mean reward, with the decisions about two versions")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", fontsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _moving(answered: Sequence[Answered]) -> tuple[list[float], list[float]]:
    """Minutes, and the mean reward of the last answers up to each; nothing before there are a quarter of the window."""
    times, means = [], []
    for end in range(_WINDOW // 4, len(answered) + 1):
        times.append(answered[end - 1].at / 60)
        means.append(fmean(each.score.reward for each in answered[max(0, end - _WINDOW) : end]))
    return times, means
