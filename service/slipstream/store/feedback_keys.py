"""Feedback by the key that posted it: how much there was lately, and what each key gives on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, get_args

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.feedback import FeedbackRow

HOUR = 3600.0
"""Seconds."""

_NEWEST = 2000
"""Posts that averages are made of: so many are read in a few milliseconds, however large the store is."""

_ENOUGH = 50
"""Posts of a key from which on its average is compared with that of others."""

_FAR = 0.3
"""Part of the range of rewards. The averages of two times 50 thumbs of the same kind differ by so much once in 370."""

State = Literal["like_others", "stands_out", "too_few"]

STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class KeyFeedback:
    """Feedback of one key among the newest posts.

    Attributes:
        posts: their number.
        mean: their mean reward.
        usual: the median of such means, over all keys with enough posts; of two keys the other's. None without others.
    """

    key: str
    posts: int
    mean: float
    usual: float | None
    state: State


async def named_since(session: AsyncSession, key: str, since: float) -> tuple[int, float | None]:
    """Answers, tasks and sessions that a key's feedback has named since then, and the time of the first of these."""
    lately = select(func.sum(FeedbackRow.named), func.min(FeedbackRow.created_at))
    lately = lately.where(FeedbackRow.key == key, FeedbackRow.created_at > since)
    named, first = (await session.execute(lately)).one()
    return int(named or 0), first


async def by_key(session: AsyncSession, span: float) -> list[KeyFeedback]:
    """The mean reward that each key gave, among the newest posts.

    Args:
        span: from the lowest reward that there may be to the highest.
    """
    newest = select(FeedbackRow.key, FeedbackRow.reward).where(FeedbackRow.reward.is_not(None))
    some = newest.order_by(FeedbackRow.created_at.desc()).limit(_NEWEST).subquery()
    each = select(some.c.key, func.count(), func.avg(some.c.reward)).where(some.c.key.is_not(None))
    rows = await session.execute(each.group_by(some.c.key).order_by(some.c.key))
    return _compared([(key, posts, mean) for key, posts, mean in rows], span)


def _compared(found: Sequence[tuple[str, int, float]], span: float) -> list[KeyFeedback]:
    """Compare with the median of all. By the mean of all posts, one busy key would make the others stand out."""
    means = {key: mean for key, posts, mean in found if posts >= _ENOUGH}
    compared = []
    for key, posts, mean in found:
        others = [each for name, each in means.items() if name != key]
        usual = None if not others else others[0] if len(others) == 1 else median(means.values())
        state: State = "too_few"
        if usual is not None and key in means:
            state = "stands_out" if abs(mean - usual) > _FAR * span else "like_others"
        compared.append(KeyFeedback(key, posts, mean, usual, state))
    return compared
