"""Failure of a simulated user."""

from __future__ import annotations

from typing import Literal

from slipstream_client.errors import SlipstreamError


class SimulatedUserError(SlipstreamError):
    """The simulated user cannot go on. In a replay the run is dropped, even if the agent catches this.

    Attributes:
        reason: `user_budget`: its budget is spent. `user_failed`: its model failed, or what it needs is missing.
    """

    def __init__(self, reason: Literal["user_budget", "user_failed"], why: str) -> None:
        super().__init__(why)
        self.reason = reason
