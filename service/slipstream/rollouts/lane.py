"""The lane as rollouts need it: a version is put into it, and it is looked at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from slipstream.errors import SlipstreamError
from slipstream.explorer.serving_writer import ServingWriter
from slipstream.proxy.metrics import SharedCounters
from slipstream.rollouts.decider import LaneSight
from slipstream.store.serving import Serving

Put = Callable[[int], Awaitable[int]]
"""Puts a version into the lane's directory, and returns the step that the lane shows once it has loaded it."""


class Served(Protocol):
    """A comparison that has a version served: a rollout, or an experiment."""

    @property
    def id(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def share(self) -> float: ...

    @property
    def lane_step(self) -> int | None: ...


class Lane(Protocol):
    """A server that answers in the place of production, with one version at a time."""

    async def place(self, version: int) -> int | None:
        """Put a version into it.

        Returns:
            The step that it has to show from then on; None if that is not looked at.

        Raises:
            SlipstreamError, OSError: it could not; this is tried again.
        """

    def seen(self, of: Served, served: Serving) -> LaneSight:
        """Return what is known of it now."""


class ServedLane:
    """The lane of this sidecar's `serving.lane`, as its workers and its page know it.

    Args:
        counters: what the workers count: their breakers show there.
        put: None for a lane that is switched by hand: what it serves when a rollout begins is the version.
    """

    def __init__(self, writer: ServingWriter, counters: SharedCounters, put: Put | None = None) -> None:
        self._writer = writer
        self._counters = counters
        self._put = put
        self._of: int | None = None
        self._kept_before = 0
        self._shown = False

    async def place(self, version: int) -> int | None:
        if self._put is not None:
            return await self._put(version)
        lane = self._writer.lane
        if lane is None:
            raise SlipstreamError("the lane was not asked yet")
        if lane.error is not None:
            raise SlipstreamError(f"the lane is not ready: {lane.error}")
        return lane.step

    def seen(self, of: Served, served: Serving) -> LaneSight:
        if self._of != of.id:  # this process sees it for the first time
            self._of, self._kept_before, self._shown = of.id, self._counters.kept_from_lane, False
        return LaneSight(self._failed(), self._changed(of, served), served.killed)

    def _failed(self) -> str | None:
        kept = self._counters.kept_from_lane - self._kept_before
        return None if kept <= 0 else "its breaker opened, after several failures in a row"

    def _changed(self, of: Served, served: Serving) -> str | None:
        expected = of.version, of.lane_step, of.share
        if of.share > 0 and (served.version, served.lane_step, served.share) != expected:
            return f"version {served.version}, step {served.lane_step}, for a share of {served.share:g}"
        step = None if self._writer.lane is None else self._writer.lane.step
        if of.lane_step is None or step is None:
            return None
        self._shown |= step == of.lane_step  # before that it may still be loading the version
        return f"its step {step}" if self._shown and step != of.lane_step else None
