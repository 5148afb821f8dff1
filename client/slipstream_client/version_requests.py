"""The sidecar's endpoints about versions of the policy, each as a request and what to make of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from slipstream_client.service import Request

_KEEPING = 60.0
"""Seconds for a name: the sidecar may copy the version's weights for it."""

MOST_VERSIONS = 200
"""Versions that are looked at."""


@dataclass(frozen=True)
class Rollout:
    """A version on its way to users.

    Attributes:
        state: such as `running`, `holding`, `promoted` or `rolled_back`.
        share: of the users that it answers, as far as its lane is ready.
        reason: of the last decision, in words.
        opened_at: Unix seconds.
        ended: nothing more is decided about it.
    """

    id: int
    version: int
    state: str
    share: float
    reason: str
    opened_at: float
    ended: bool


@dataclass(frozen=True)
class Evaluation:
    """A version on the cases of a suite.

    Attributes:
        state: `pending`, `running`, `done`, `changed` or `failed`.
        reason: why it failed or is not used; None otherwise.
        result: sums over its answers; None until it is done.
    """

    id: int
    version: int
    state: str
    reason: str | None
    result: Mapping[str, Any] | None


def get_versions() -> Request[list[dict[str, Any]]]:
    """The newest versions, the newest first."""
    return Request("GET", f"/versions?limit={MOST_VERSIONS}", None, lambda answer: list(answer["versions"]))


def get_version(name: str | int) -> Request[int]:
    """The number of a version, by that or by an alias. Refused with 404 where there is none."""
    return Request("GET", f"/versions/{quote(str(name), safe='')}", None, lambda answer: int(answer["version"]))


def get_aliases() -> Request[dict[str, int]]:
    """The version of each alias."""

    def read(answer: Any) -> dict[str, int]:
        return {each["name"]: int(each["version"]) for each in answer["aliases"]}

    return Request("GET", "/aliases", None, read)


def put_alias(name: str, version: int) -> Request[int]:
    """Have a name mean a version, and keep its weights; its answer is the version."""
    path = f"/aliases/{quote(name, safe='')}"
    return Request("PUT", path, {"version": version}, lambda answer: int(answer["version"]), _KEEPING)


def get_newest_rollout() -> Request[Rollout | None]:
    """The newest rollout; None before the first."""
    return Request("GET", "/rollouts?limit=1", None, lambda answer: next(map(_rollout, answer["rollouts"]), None))


def post_rollout(body: Mapping[str, Any]) -> Request[Rollout]:
    """Open a rollout."""
    return Request("POST", "/rollouts", body, _rollout)


def post_abort(rollout: int) -> Request[Rollout]:
    """Send all users back to production, and end a rollout."""
    return Request("POST", f"/rollouts/{rollout}/abort", None, _rollout)


def get_share() -> Request[tuple[int | None, float]]:
    """The version that answers users, and its share of them."""
    return Request("GET", "/serving", None, lambda answer: (answer["version"], float(answer["share"])))


def post_share(version: int, share: float) -> Request[float]:
    """Have a version answer a share of the users."""
    body = {"version": version, "share": share}
    return Request("POST", "/serving/share", body, lambda answer: float(answer["share"]))


def post_evaluation(version: int, suite: str | None) -> Request[Evaluation]:
    """Ask a version that is served now the cases of a suite; None for the only one."""
    return Request("POST", "/evaluations", {"version": version, "suite": suite}, _evaluation)


def get_evaluation(evaluation: int) -> Request[Evaluation]:
    """An evaluation as it is at the moment."""
    return Request("GET", f"/evaluations/{evaluation}", None, _evaluation)


def _rollout(answer: Any) -> Rollout:
    names = "id", "version", "state", "share", "reason", "opened_at"
    return Rollout(**{name: answer[name] for name in names}, ended=answer["ended_at"] is not None)


def _evaluation(answer: Any) -> Evaluation:
    return Evaluation(*(answer[name] for name in ("id", "version", "state", "reason", "result")))
