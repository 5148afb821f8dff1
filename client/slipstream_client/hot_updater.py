"""New versions of the policy brought to users: seen, tested on a suite, rolled out, and taken back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypedDict

from slipstream_client.errors import SidecarAway, SlipstreamError
from slipstream_client.service import Service
from slipstream_client.version_requests import (
    MOST_VERSIONS,
    Rollout,
    get_evaluation,
    get_newest_rollout,
    get_share,
    get_versions,
    post_abort,
    post_evaluation,
    post_rollout,
    post_share,
)

STRATEGIES = ("rolling", "canary")

_STEPS = (0.05, 0.2, 0.5, 0.95)
"""Shares of the users, as those of the sidecar's default plan."""

_UNTESTED = ("seen", "kept", "tested")
"""States of versions that users have not been answered by."""

_LOOK = 0.5
"""Seconds between two looks at an evaluation."""


class UpdateConfig(TypedDict, total=False):
    """Options of a HotUpdater.

    Attributes:
        strategy: `rolling` goes through the sidecar's default steps; `canary` begins at `canary_ratio`. By default
            `rolling`.
        canary_ratio: share of the users in the first step, above 0 and up to 0.95. By default 0.1.
        check_after_updates: versions that must have come before there is a new model, from 1 to 200. By default 1.
    """

    strategy: Literal["rolling", "canary"]
    canary_ratio: float
    check_after_updates: int


class CanaryResult(TypedDict):
    """A version on the cases of a suite.

    Attributes:
        success_rate: part of its answers with a reward of the suite's `threshold` or more.
        reward: their mean reward.
        verdict: against production on the same cases: `better`, `equal`, `worse` or `not_enough_data`; None if
            production was not asked.
    """

    evaluation: int
    version: int
    success_rate: float | None
    reward: float | None
    verdict: str | None


class HotUpdater:
    """Brings new versions to users through the sidecar. Its key needs the role `operator` or `admin`.

    Args:
        agent: is left as it is: its calls go to the sidecar, which decides who answers them.
        update_config: see `UpdateConfig`.

    Raises:
        ValueError: an option cannot be used; the message names it.
    """

    def __init__(self, agent: object = None, update_config: UpdateConfig | Mapping[str, Any] | None = None) -> None:
        config = dict(update_config or {})
        if unknown := config.keys() - UpdateConfig.__annotations__.keys():
            names = ", ".join(UpdateConfig.__annotations__)
            raise ValueError(f"update_config: expected {names}, found {', '.join(sorted(map(str, unknown)))}")
        self._strategy = config.get("strategy", "rolling")
        if self._strategy not in STRATEGIES:
            raise ValueError(f"update_config.strategy: expected rolling or canary, found {self._strategy!r}")
        self._ratio = _share("update_config.canary_ratio", config.get("canary_ratio", 0.1))
        after = config.get("check_after_updates", 1)
        if isinstance(after, bool) or not isinstance(after, int) or not 1 <= after <= MOST_VERSIONS:
            expected = f"a number from 1 to {MOST_VERSIONS}"
            raise ValueError(f"update_config.check_after_updates: expected {expected}, found {after!r}")
        self._after: int = after
        self._tested: int | None = None

    def has_new_model(self) -> bool:
        """Return whether `check_after_updates` versions or more came since the last rollout was opened.

        Raises:
            SidecarAway, SidecarRefused: the sidecar did not say.
        """
        return len(self._new_versions()) >= self._after

    def test_canary(self, test_cases: str | None = None, *, timeout: float = 600.0) -> CanaryResult:
        """Have the newest new version, or without one the newest, asked the cases of a suite, and wait for the result.
        While the sidecar is away it goes on waiting.

        Args:
            test_cases: the name of a suite of `evaluation.suites` in sidecar.yaml; None for the only one.
            timeout: seconds to wait.

        Raises:
            ValueError: the cases are given themselves. The sidecar reads them from a file that its suite names.
            TimeoutError: the evaluation goes on, and is not done yet, or the sidecar is away.
            SidecarAway, SidecarRefused: it was not begun; 409 `not_served` while the Explorer has not loaded the
                version.
            SlipstreamError: it failed, or the version was not served to its end.
        """
        if test_cases is not None and not isinstance(test_cases, str):
            raise ValueError(
                "test_cases: expected the name of a suite in evaluation.suites of sidecar.yaml, found "
                f"{type(test_cases).__name__}; write the cases to the JSONL file of a suite"
            )
        version = self._newest()
        until = time.monotonic() + timeout
        with Service() as service:
            found = service.send(post_evaluation(version, test_cases))
            while found.state in ("pending", "running"):
                if time.monotonic() >= until:
                    told = f"evaluation {found.id} of version {version} is {found.state} after {timeout:g} s"
                    raise TimeoutError(told)
                time.sleep(_LOOK)
                with suppress(SidecarAway):  # the evaluation goes on, and a restart of the sidecar is short
                    found = service.send(get_evaluation(found.id))
        if found.state != "done" or found.result is None:
            raise SlipstreamError(f"evaluation {found.id} of version {version} is {found.state}: {found.reason}")
        self._tested = version
        own, compared = found.result["version"], found.result["against_production"]
        return {
            "evaluation": found.id,
            "version": version,
            "success_rate": own["success_rate"],
            "reward": own["reward"]["mean"],
            "verdict": None if compared is None else compared["verdict"],
        }

    def rollout_update(self, **plan: Any) -> Rollout:
        """Open a rollout of the version that this updater tested last; without one, of the newest. The sidecar takes it
        from step to step, and promotes it or takes it back, by what is proven. Users of a version that is live go back
        to production first.

        Args:
            plan: further fields of `POST /rollouts`, such as `objective` or `min_units`.

        Raises:
            SidecarAway, SidecarRefused: it was not opened; 409 `rollout_open` while another one is on its way.
        """
        steps: tuple[float, ...] = _STEPS
        if self._strategy == "canary":
            steps = self._ratio, *(step for step in _STEPS if step > self._ratio)
        version = self._newest() if self._tested is None else self._tested
        with Service() as service:
            opened = service.send(post_rollout({"version": version, "replace": True, "steps": steps, **plan}))
        self._tested = None
        return opened

    def rollback(self) -> Rollout | None:
        """Send all users back to production, those of a live version too. A version that was only tested has none.

        Returns:
            The rollout that was ended; None if there was none.

        Raises:
            SidecarAway, SidecarRefused: it was not done.
        """
        with Service() as service:
            return send_back(service)

    def _newest(self) -> int:
        new = self._new_versions()
        if new:
            return int(new[0]["version"])
        with Service() as service:
            return newest_version(service)

    def _new_versions(self) -> list[dict[str, Any]]:
        """Versions that came after the last one that users were answered by, the newest first."""
        with Service() as service:
            last = service.send(get_newest_rollout())
            found = service.send(get_versions())
        return [one for one in found if one["version"] > 0 and one["state"] in _UNTESTED and _is_after(one, last)]


def send_back(service: Service) -> Rollout | None:
    """End the rollout that is open or live, or take back the share that was set by hand."""
    current = service.send(get_newest_rollout())
    if current is not None and not current.ended:
        return service.send(post_abort(current.id))
    version, share = service.send(get_share())
    if version is not None and share > 0:
        service.send(post_share(version, 0.0))
    return None


def newest_version(service: Service) -> int:
    """The number of the newest version.

    Raises:
        SlipstreamError: there is none.
    """
    found = service.send(get_versions())
    if not found:
        raise SlipstreamError("the sidecar knows no version yet")
    return int(found[0]["version"])


def _is_after(version: Mapping[str, Any], last: Rollout | None) -> bool:
    """Numbers begin again after a rollback of training, so that a lower one can be newer."""
    if last is None or version["version"] > last.version:
        return True
    return float(version["made_at"] or version["found_at"]) > last.opened_at


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 0.95:
        raise ValueError(f"{name}: expected a share above 0 and up to 0.95, found {value!r}")
    return float(value)
