"""Sessions of two arms in the order of assignment, as differences of treatment less control.

A session is the unit, because its calls resemble each other. The order is that of assignment, because the order of
arrival depends on the outcome: complaints come sooner than praise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slipstream.evidence.checks import between, within


class Session(NamedTuple):
    """One session of a comparison.

    Args:
        treated: true if it was assigned to the treatment, whichever arm answered it in the end.
        value: its reward, one number for the whole session; None while that may still change.
    """

    treated: bool
    value: float | None


def differences(sessions: Iterable[Session], low: float = 0.0, high: float = 1.0) -> list[float]:
    """Differences between the arms, one for each block of sessions, in the order of assignment.

    A block is the shortest run of sessions that has both arms. Its difference is the mean of its treated sessions less
    the mean of its control sessions. No session is left out, and the arms are treated alike at every share. With few
    treated sessions a block is one of them and the control sessions since the last one. Sessions of one block are
    close in time, so what changes for both arms alike cancels out.

    Args:
        sessions: in the order of assignment. The arm of each was drawn independently of all outcomes.
        low: the least value that a session can have.
        high: the greatest.

    Returns:
        Numbers in [-1, 1], in parts of the range `high - low`. They end before the first session without a value,
        because what comes after it must not be counted first.

    Raises:
        ValueError: `high` is not above `low`, or a value is outside of the range.
    """
    width = between("high", high, low, float("inf")) - low
    found: list[float] = []
    sums, counts = [0.0, 0.0], [0, 0]
    for treated, value in sessions:
        if value is None:
            break
        sums[treated] += (within("value", value, low, high) - low) / width
        counts[treated] += 1
        if all(counts):
            found.append(sums[True] / counts[True] - sums[False] / counts[False])
            sums, counts = [0.0, 0.0], [0, 0]
    return found


def sessions_per_difference(share: float) -> float:
    """Mean number of sessions in a block, if each session is treated with probability `share`.

    Raises:
        ValueError: `share` is not above 0 and below 1.
    """
    between("share", share, 0, 1)
    return 1 + (1 - share) / share + share / (1 - share)
