"""The reward that a scripted engine's answer promises."""

from slipstream.trajectory import Run


def reward(run: Run) -> float:
    """`worth 0.25` is worth 0.25."""
    return float(run.text.removeprefix("worth "))


def unless_it_is_nothing(run: Run) -> float:
    """The same, where `worth 0.0` cannot be judged."""
    if not (value := reward(run)):
        raise ValueError("nothing to judge")
    return value


def not_a_number(run: Run) -> float:
    return float("nan")


def endless(run: Run) -> float:
    return float("inf")


def a_yes(run: Run) -> bool:
    return True


def far_too_much(run: Run) -> float:
    return 1e30
