"""The demo's result as a picture: reward per version, the policy against production."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from learning import History

mpl.use("Agg")  # no display is needed
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

_PRODUCTION, _POLICY, _CALLED = "0.45", "tab:blue", "tab:orange"


def draw(history: History, path: Path) -> None:
    """Writes a PNG. `history` has production and at least one version."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    versions = sorted(history.policy)
    scores = [history.policy[version] for version in versions]
    axes.plot(
        [step.version - 1 for step in history.steps],  # a step's runs were made by the version before it
        [step.score.reward for step in history.steps],
        color=_POLICY,
        alpha=0.35,
        label="policy, its runs in training",
    )
    axes.plot(versions, [each.called for each in scores], "--", color=_CALLED, label="policy: tool called")
    axes.plot(versions, [each.reward for each in scores], "o-", color=_POLICY, linewidth=2.5, label="policy: reward")
    if history.production is not None:
        axes.axhline(history.production.reward, color=_PRODUCTION, linewidth=2, label="production: reward (frozen)")
    axes.set(
        xlabel="version", ylabel="mean over held-out tasks", ylim=(-0.02, 1.02), title="Held-out reward by version"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="center right", fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)
