"""A/B tests at the sidecar: production and a version of the policy compared on users."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slipstream_client.errors import SidecarAway, SlipstreamError
from slipstream_client.service import Service, get_experiment, post_experiment, post_experiment_stop

_METRICS = {"accuracy": "reward", "user_satisfaction": "feedback"}
"""Other names for the sidecar's metrics."""

_DAY = 86400.0

_LOOK = 60.0
"""Seconds between two looks at an experiment that takes days."""


class ABTestFramework:
    """One experiment. The key of `configure(api_key=...)` needs the role `operator` or `admin`, and no tenant.

    Args:
        model_a: `production`: the sidecar compares versions with it, and refuses another one with the reason.
        model_b: `version:8`, or an alias of a version such as `v1.1`.
        traffic: shares of the users of `a` and `b`, which sum to 1.
        metrics: `accuracy` (the reward), `latency`, `user_satisfaction` (feedback), or the sidecar's own names. It is
            decided by the first.
        name: of the experiment; by default `model_b`.
        fields: other fields of `POST /experiments`, such as `min_units`.

    Attributes:
        number: of the experiment at the sidecar; None before it is started.

    Raises:
        ValueError: the shares are not those of `a` and `b`, or do not sum to 1.
    """

    def __init__(
        self,
        model_a: str,
        model_b: str,
        traffic: Mapping[str, float] | None = None,
        metrics: Sequence[str] = ("accuracy", "latency", "user_satisfaction"),
        *,
        name: str | None = None,
        **fields: Any,
    ) -> None:
        shares = {"a": 0.5, "b": 0.5} if traffic is None else dict(traffic)
        if set(shares) != {"a", "b"} or abs(sum(shares.values()) - 1) > 1e-6:
            raise ValueError(f"traffic: expected shares of a and b that sum to 1, found {shares}")
        self.number: int | None = None
        self._metrics = tuple(metrics)
        self._body: dict[str, Any] = {
            "name": name or model_b[:64],
            "a": model_a,
            "b": model_b,
            "share": shares["b"],
            "metrics": [_METRICS.get(metric, metric) for metric in metrics],
            **fields,
        }

    def start(self, test_duration_days: float | None = None) -> dict[str, Any]:
        """Start it; returns the experiment.

        Args:
            test_duration_days: after which it ends; without it as soon as one arm is proven better, or as `fields` say.

        Raises:
            SidecarAway, SidecarRefused: it was not started.
        """
        ends = {} if test_duration_days is None else {"ends": "duration", "duration": test_duration_days * _DAY}
        with Service() as service:
            started = service.send(post_experiment({**self._body, **ends}))
        self.number = int(started["id"])
        return started

    def run(
        self,
        test_duration_days: float | None = None,
        *,
        look: float = _LOOK,
        sleep: Callable[[float], None] = time.sleep,
    ) -> dict[str, dict[str, float | None]]:
        """Start it, and wait for its end; returns `results`. While the sidecar is away it goes on waiting.

        Args:
            test_duration_days: as of `start`.
            look: seconds between two looks.
            sleep: waits for so many seconds.

        Raises:
            SlipstreamError: it failed: the version did not come into the lane, or the lane broke.
            SidecarAway, SidecarRefused: it was not started.
        """
        self.start(test_duration_days)
        while True:
            sleep(look)
            try:
                found = self.report()
            except SidecarAway:
                continue
            if found["state"] == "failed":
                raise SlipstreamError(f"experiment {self.number} failed: {found['reason']}")
            if found["ended_at"] is not None:
                return self._means(found)

    def results(self) -> dict[str, dict[str, float | None]]:
        """The mean of each metric so far, by arm and by the name that it was asked for; None without data.

        Raises:
            ValueError: it was not started.
            SidecarAway, SidecarRefused: the sidecar did not tell.
        """
        return self._means(self.report())

    def report(self) -> dict[str, Any]:
        """The experiment with its state, winner, intervals, evidence, and what is missing: `GET /experiments/{id}`.

        Raises:
            ValueError, SidecarAway, SidecarRefused: as of `results`.
        """
        with Service() as service:
            return service.send(get_experiment(self._started))

    def switch_traffic(self, arm: str, share: float = 1.0, *, force: bool = False) -> dict[str, Any]:
        """Have one arm answer the users from now on, and end the experiment if it goes on; returns the experiment.

        With `b` its version is promoted: 5% of the users stay with production as control.

        Args:
            arm: `a` or `b`.
            share: 1.0; the split of a test is `traffic`.
            force: switch to `b` whatever the verdict for its version is.

        Raises:
            ValueError: another arm or share, or it was not started.
            SidecarAway, SidecarRefused: the traffic stays as it was.
        """
        if arm not in ("a", "b"):
            raise ValueError(f"arm: expected a or b, found {arm!r}")
        if share != 1.0:
            raise ValueError(f"share: expected 1.0, because the split of a test is its traffic; found {share!r}")
        with Service() as service:
            return service.send(post_experiment_stop(self._started, {"decision": arm, "force": force}))

    @property
    def _started(self) -> int:
        if self.number is None:
            raise ValueError("the experiment was not started: call start or run first")
        return self.number

    def _means(self, found: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
        measured = found["report"]["metrics"]
        return {
            arm: {metric: measured[_METRICS.get(metric, metric)][arm]["mean"] for metric in self._metrics}
            for arm in ("a", "b")
        }
