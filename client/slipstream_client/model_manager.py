"""Versions of the policy by names: given, gone back to, and compared with production."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream_client.hot_updater import newest_version, send_back
from slipstream_client.service import Service
from slipstream_client.version_requests import (
    Rollout,
    get_aliases,
    get_newest_rollout,
    get_version,
    post_rollout,
    put_alias,
)

PRODUCTION = "production"
"""Name of the production model in `create_ab_test`."""


class ModelManager:
    """Names versions, and brings named ones to users, through the sidecar. Its key needs the role `operator` or
    `admin`.

    Args:
        checkpoint_dir: is not read: `serving.checkpoints` of sidecar.yaml says where the Trainer's versions are.
    """

    def __init__(self, checkpoint_dir: object = None) -> None:
        del checkpoint_dir

    def create_version(self, name: str, version: int | None = None) -> int:
        """Give a version a name, which keeps its weights, and return its number. The same again is no error.

        Args:
            name: 1 to 64 letters, digits, `.`, `_` and `-`, and not digits alone, such as `v1.0`.
            version: None for the newest.

        Raises:
            ValueError: the name means another version already.
            SidecarAway, SidecarRefused: it was not given; 409 `not_kept` if the weights are gone.
        """
        with Service() as service:
            named = service.send(get_aliases()).get(name)
            if version is None and named is not None:
                raise ValueError(f"name: {name!r} means version {named} already")
            number = newest_version(service) if version is None else version
            if named not in (None, number):
                raise ValueError(f"name: {name!r} means version {named} already, found version {number}")
            return service.send(put_alias(name, number))

    def rollback(self, name: str, **plan: Any) -> Rollout:
        """Go back to a named version: whatever is open or live is ended, which sends all users to production at once,
        and a rollout of that version is opened.

        Args:
            name: of a version, or its number.
            plan: further fields of `POST /rollouts`, such as `steps`.

        Raises:
            SidecarAway, SidecarRefused: it was not opened. 404: there is no such version, and nothing was changed.
        """
        with Service() as service:
            number = service.send(get_version(name))
            current = service.send(get_newest_rollout())
            current = None if current is None or current.ended else current
            if current is not None and current.version == number:
                return current
            if current is None or current.state != "promoted":  # a live one is replaced in one step with the opening
                send_back(service)
            return service.send(post_rollout({"version": number, "replace": True, **plan}))

    def create_ab_test(
        self, version_a: str, version_b: str, traffic_ratio: Mapping[str, float], **plan: Any
    ) -> Rollout:
        """Open a rollout by hand: a version answers a fixed share of the users, and production the others, until
        somebody decides. If harm is proven, the version is taken back before that.

        Args:
            version_a, version_b: `"production"` and a version's name, in any order. A lane serves one version.
            traffic_ratio: the shares of `a` and `b`, which add up to 1; the version's is at most 0.95.
            plan: further fields of `POST /rollouts`, such as `objective`.

        Raises:
            ValueError: neither is production, or the shares are none; the message names the argument.
            SidecarAway, SidecarRefused: it was not opened.
        """
        names = {"a": version_a, "b": version_b}
        treated = [arm for arm, name in names.items() if name != PRODUCTION]
        if len(treated) != 1:
            raise ValueError(
                f"version_a, version_b: expected {PRODUCTION!r} and a version, found {version_a!r} and {version_b!r}; "
                "the lane serves one version, which is compared with production"
            )
        share = _share(traffic_ratio, treated[0])
        with Service() as service:
            number = service.send(get_version(names[treated[0]]))
            body = {"version": number, "steps": [share], "approval": "by_hand", **plan}
            return service.send(post_rollout(body))


def _share(ratio: Mapping[str, float], arm: str) -> float:
    numbers = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in ratio.values())
    if set(ratio) != {"a", "b"} or not numbers or abs(sum(ratio.values()) - 1) > 1e-6 or not 0 < ratio[arm] <= 0.95:
        raise ValueError(
            f"traffic_ratio: expected shares of a and b that add up to 1, {arm}'s at most 0.95, found {dict(ratio)!r}"
        )
    return float(ratio[arm])
