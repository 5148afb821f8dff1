"""Refusals of numbers that the statistics are not defined for."""

from __future__ import annotations


def within(name: str, value: float, low: float, high: float) -> float:
    """The value, if it is a number from `low` to `high`.

    Raises:
        ValueError: it is not, NaN included; the message names the field.
    """
    if not low <= value <= high:
        raise ValueError(f"{name}: expected a number from {low:g} to {high:g}, found {value!r}")
    return value


def between(name: str, value: float, low: float, high: float) -> float:
    """The value, if it is a number above `low` and below `high`.

    Raises:
        ValueError: it is not, NaN included; the message names the field.
    """
    if not low < value < high:
        raise ValueError(f"{name}: expected a number above {low:g} and below {high:g}, found {value!r}")
    return value


def at_least(name: str, value: int, low: int) -> int:
    """The value, if it is an integer from `low` on.

    Raises:
        ValueError: it is not; the message names the field.
    """
    if not isinstance(value, int) or value < low:
        raise ValueError(f"{name}: expected an integer, at least {low}, found {value!r}")
    return value
