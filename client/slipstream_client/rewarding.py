"""Feedback on answers, and the commit that hands it to the Trainer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from slipstream_client import outbox, validation
from slipstream_client.context import current
from slipstream_client.service import AsyncService, Committed, Service, post_commit, post_feedback

MAX_MSG_IDS = 1000
MAX_COMMENT = 10_000
MAX_SOURCE = 256

COMMIT_TIMEOUT = 60.0
"""Seconds for a commit: the sidecar delivers everything that is ready before it answers."""


def feedback(
    *,
    msg_id: str | None = None,
    msg_ids: Sequence[str] | None = None,
    task_id: str | None = None,
    session_id: str | None = None,
    reward: float | None = None,
    rating: int | None = None,
    thumbs: Literal["up", "down"] | None = None,
    comment: str | None = None,
    source: str | None = None,
) -> None:
    """Say what somebody thought of an answer. Returns at once; does nothing in a replay.

    Name the answer by exactly one of `msg_id` (the `id` of the answer: the exact way), `msg_ids`, `task_id`
    and `session_id` (the last answer of the task, or of the session, when the sidecar gets this). Say exactly one of
    `reward`, `rating` and `thumbs`.

    Args:
        msg_ids: 1 to 1000 of them; the same for each.
        reward: a finite number, by convention from 0 to 1; the sidecar's `rewards.clip` limits it.
        rating: 1 to 5.
        thumbs: `up` or `down`.
        comment: any text; what is beyond 10000 characters is cut off.
        source: who says so, such as `user` or `ci`; 1 to 256 characters.

    Raises:
        TypeError, ValueError: an argument cannot be used; the message begins with its name.
    """
    body: dict[str, Any] = {}
    if msg_id is not None:
        body["msg_id"] = validation.text("msg_id", msg_id, validation.MAX_MSG_ID)
    if msg_ids is not None:
        if isinstance(msg_ids, str) or not isinstance(msg_ids, Sequence):
            raise TypeError(f"msg_ids: expected a list of text, found {msg_ids!r}")
        if not 1 <= len(msg_ids) <= MAX_MSG_IDS:
            raise ValueError(f"msg_ids: expected 1 to {MAX_MSG_IDS} of them, found {len(msg_ids)}")
        body["msg_ids"] = [validation.text("msg_ids", one, validation.MAX_MSG_ID) for one in msg_ids]
    if task_id is not None:
        body["task_id"] = validation.name("task_id", task_id)
    if session_id is not None:
        body["session_id"] = validation.name("session_id", session_id)
    if len(body) != 1:
        raise ValueError("msg_id, msg_ids, task_id, session_id: give exactly one of them")
    body.update(_verdict(reward, rating, thumbs))
    if comment is not None:
        if not isinstance(comment, str):
            raise TypeError(f"comment: expected text, found {comment!r}")
        body["comment"] = validation.clean(comment[:MAX_COMMENT])
    if source is not None:
        body["source"] = validation.clean(validation.text("source", source, MAX_SOURCE))
    if current().replay is None:
        outbox.put(post_feedback(body), passing=session_id is not None)


def _verdict(reward: object, rating: object, thumbs: object) -> dict[str, Any]:
    said = {
        name: value for name, value in (("reward", reward), ("rating", rating), ("thumbs", thumbs)) if value is not None
    }
    if len(said) != 1:
        raise ValueError("reward, rating, thumbs: give exactly one of them")
    if reward is not None:
        if isinstance(reward, bool) or not isinstance(reward, (int, float)):
            raise TypeError(f"reward: expected a number, found {reward!r}")
        if not math.isfinite(reward):
            raise ValueError(f"reward: expected a finite number, found {reward!r}")
    elif rating is not None:
        if isinstance(rating, bool) or not isinstance(rating, int):
            raise TypeError(f"rating: expected an integer from 1 to 5, found {rating!r}")
        if not 1 <= rating <= 5:
            raise ValueError(f"rating: expected an integer from 1 to 5, found {rating!r}")
    elif thumbs not in ("up", "down"):
        raise ValueError(f"thumbs: expected 'up' or 'down', found {thumbs!r}")
    return said


def commit(timeout: float = COMMIT_TIMEOUT) -> Committed:
    """Deliver now what the sidecar's commit timer would deliver.

    Args:
        timeout: seconds.

    Raises:
        SidecarAway: it was not reached, was too slow, or the Explorer did not take the commit.
        SlipstreamError: another answer.
    """
    with Service() as service:
        return service.send(post_commit(timeout))


async def async_commit(timeout: float = COMMIT_TIMEOUT) -> Committed:
    """The asynchronous twin of `commit`."""
    async with AsyncService() as service:
        return await service.send(post_commit(timeout))
