"""`slipstream serving` and `slipstream kill`: the share of users that a version answers, shown and changed."""

from __future__ import annotations

from typing import Any

import httpx

from slipstream.errors import SlipstreamError
from slipstream.terminal.sidecar_http import OPERATORS, READERS, SidecarAway, ask
from slipstream.terminal.sidecar_http import client as open_client

_KILL_LATE = (
    "took the kill, and its workers send nobody to the lane; the training side did not answer in time, and notes it "
    "when it can"
)


def show(url: str, key: str | None) -> None:
    """Print the share, the lane and how requests went.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key.
    """
    with open_client(url, key) as client:
        found = ask(client, "/serving", roles=READERS, field="share")
    print(_line(found))
    for arm, counts in found["arms"].items():
        print(f"{arm}: " + ", ".join(f"{number} {name}" for name, number in counts.items()))


def share(url: str, key: str | None, version: int, of_users: float) -> None:
    """Have a version answer a share of the users.

    Raises:
        SlipstreamError: as `show`; also for what the sidecar refuses.
    """
    with open_client(url, key) as client:
        print(_line(_post(client, "/serving/share", {"version": version, "share": of_users})))


def kill(url: str, key: str | None) -> None:
    """Have production answer everybody.

    Raises:
        SlipstreamError: as `share`.
    """
    with open_client(url, key) as client:
        answer = _post(client, "/serving/kill", late=_KILL_LATE)
    if answer.get("noted") is False:
        print("killed: the workers of this host send nobody to the lane; the training side is away and notes it later")
    else:
        print(_line(answer))


def revive(url: str, key: str | None) -> None:
    """Take a kill back.

    Raises:
        SlipstreamError: as `share`.
    """
    with open_client(url, key) as client:
        print(_line(_post(client, "/serving/revive")))


def _line(found: dict[str, Any]) -> str:
    if found["killed"]:
        return "killed: production answers everybody; `slipstream kill --revive` takes it back"
    if found["version"] is None or not found["share"]:
        return "production answers everybody"
    ready = "" if found["ready"] else f", and production until its lane is ready: {found['reason']}"
    return f"version {found['version']} answers {found['share']:.1%} of the users{ready}"


def _post(client: httpx.Client, path: str, body: dict[str, Any] | None = None, late: str = "") -> dict[str, Any]:
    try:
        return ask(client, path, roles=OPERATORS, field="killed", body=body or {})
    except SidecarAway as error:
        if late and isinstance(error.__cause__, httpx.ReadTimeout):
            raise SlipstreamError(f"{str(client.base_url).rstrip('/')} {late}") from error
        raise
