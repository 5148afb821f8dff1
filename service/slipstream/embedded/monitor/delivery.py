"""Delivery of metrics to a server that may be slow or away, by a thread of its own.

Training puts what it measured into a queue and goes on: it never waits, and no error reaches it. What could not be
delivered is tried again until the run ends; what is too much is lost here, and stays in TensorBoard's files.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import structlog

from slipstream.embedded.monitor.run import Sink

log = structlog.get_logger(__name__)

_MOST = 10_000
"""Deliveries that wait: the steps of hours; the oldest are lost beyond it."""

_ATTEMPTS = 5
"""Attempts at one delivery to a server that is there: what it refuses each time keeps the others waiting."""

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""Seconds between two attempts."""

_CLOSE_SECONDS, _CLOSE_SECONDS_AWAY = 60.0, 10.0
"""For what still waits when training has ended: to import a library and make a local store may take the first; the
second is for a monitor that has failed by then."""

Act = Callable[[Sink], None]


class Delivery:
    """Deliveries in their order, to a sink that is opened meanwhile.

    Args:
        name: of the monitor, for the log.
        opened: opens it; raises what its library raises.
        pause: seconds before the first repetition.
    """

    def __init__(self, name: str, opened: Callable[[], Sink], pause: float = _FIRST_PAUSE) -> None:
        self._name = name
        self._opened = opened
        self._first_pause = pause
        self._waiting: deque[Act] = deque()
        self._lost = 0
        self._changed = threading.Condition()
        self._closing = self._failing = False
        self._sink: Sink | None = None
        self._thread = threading.Thread(target=self._run, name=f"monitor-{name}", daemon=True)
        self._thread.start()

    def put(self, act: Act) -> None:
        """Have something delivered; never waits and never raises."""
        with self._changed:
            if len(self._waiting) >= _MOST:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(act)
            self._changed.notify()

    def close(self, seconds: float | None = None) -> None:
        """Deliver what waits and end the run, in so many seconds; what is left then is given up.

        Args:
            seconds: None for 60, or 10 if the monitor has failed.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        usual = _CLOSE_SECONDS_AWAY if self._failing else _CLOSE_SECONDS
        self._thread.join(usual if seconds is None else seconds)
        if self._thread.is_alive() or self._waiting or self._lost:
            log.warning(
                "not all metrics reached the monitor: TensorBoard's files have them",
                monitor=self._name,
                waiting=len(self._waiting),
                lost=self._lost,
            )

    def _run(self) -> None:
        pause, attempts = self._first_pause, 0
        act: Act | None = None
        while True:
            last = self._closing
            try:
                if self._sink is None:
                    self._sink = self._opened()
                if act is not None:
                    attempts += 1
                    act(self._sink)
            except Exception as error:  # noqa: BLE001 - whatever a library raises, training goes on
                self._fail(error)
                if act is not None and attempts >= _ATTEMPTS:
                    self._done(act, lost=1)
                    act, attempts = None, 0
                if last:
                    break
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, timeout=pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            if act is not None:
                self._done(act)
                pause, attempts = self._first_pause, 0
                self._recover()
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                act = self._waiting[0] if self._waiting else None
            if act is None:
                break
        self._end()

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            log.warning(
                "the monitor failed: training goes on, and it is tried again",
                monitor=self._name,
                error=f"{type(error).__name__}: {error}"[:500],
            )
        self._failing = True

    def _recover(self) -> None:
        if self._failing:
            self._failing = False
            log.info("the monitor is there again", monitor=self._name)

    def _done(self, act: Act, lost: int = 0) -> None:
        with self._changed:
            if self._waiting and self._waiting[0] is act:  # else it was too old, and is gone
                self._waiting.popleft()
                self._lost += lost

    def _end(self) -> None:
        try:
            if self._sink is not None:
                self._sink.close()
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("the monitor's run could not be ended", monitor=self._name, error=str(error)[:500])
