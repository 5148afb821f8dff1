"""The running sidecar at one moment, as its own checks look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.access.expiry import Expiring
from slipstream.capture.outcomes import Outcomes
from slipstream.settings.sidecar import Settings
from slipstream.store.answered_versions import OtherVersion
from slipstream.store.constant_components import ConstantComponent
from slipstream.store.feedback_keys import KeyFeedback
from slipstream.store.health import Health
from slipstream.store.outbox import Waiting

_ASSUMED_BATCH = 256
"""Experiences, where `explorer.train_batch_size` is not given: a batch is seldom larger."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The facts that the checks look at, at one moment.

    Attributes:
        explorer_up: None before it was asked; `explorer_since`: when that last changed.
        breaker: closed, open or half_open; `webhook`: that of the endpoint of replays, and why it failed.
        versions: the lowest and the highest version that its engines serve; `apart_since`: since when they differ.
        dropped_at: when a call was last not captured because the queue was full.
        waiting: exchanges that are not stored as calls yet.
        store_full: nothing is captured, for want of room.
        outcomes: what became of the calls of the last minutes.
        expiring: keys that expire soon, or have expired.
        feedback: what each key gives, compared with the others.
        receivers: what each receiver of webhooks waits for.
        published: the newest version in the Trainer's directory, and since when, Unix seconds.
        lane_steps: the step that the lane serves, and the one that a share of the users is for.
        other_version: answers of another version than the one that was said.
        constant: calculators that gave one value to all newest runs.
    """

    now: float
    settings: Settings
    explorer_up: bool | None
    explorer_error: str | None
    explorer_since: float | None
    breaker: str
    webhook: str
    webhook_error: str | None
    versions: tuple[int | None, int | None]
    apart_since: float | None
    dropped_at: float | None
    waiting: int
    store_full: bool
    health: Health
    outcomes: Outcomes = field(default_factory=Outcomes)
    expiring: Sequence[Expiring] = ()
    feedback: Sequence[KeyFeedback] = ()
    receivers: Sequence[Waiting] = ()
    published: tuple[int | None, float] = (None, 0.0)
    lane_steps: tuple[int | None, int | None] = (None, None)
    other_version: OtherVersion | None = None
    constant: Sequence[ConstantComponent] = ()

    @property
    def batch(self) -> int:
        """Return how many experiences the Trainer takes at a time."""
        return self.settings.explorer.train_batch_size or _ASSUMED_BATCH
