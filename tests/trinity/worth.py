"""The reward that a scripted engine's answer promises."""

from slipstream.trajectory import Run


def reward(run: Run) -> float:
    """`worth 0.25` is worth 0.25."""
    return float(run.text.removeprefix("worth "))
