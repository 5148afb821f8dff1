"""Requests of the sidecar, verified: events, and those by which it has an agent run again (`runs.mode: webhook`)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from slipstream_client.context import Context, Replay, entered
from slipstream_client.side_effects.recording import GuardedReplay
from slipstream_client.threads import instrumented

_PREFIX = "whsec_"
"""Begins a secret that is written in base64, says Standard Webhooks."""


MOST_GROUPS = 1000
"""Groups that are known at a time; a sidecar has some ten runs open."""


class WebhookError(ValueError):
    """A webhook's request is not what the sidecar has sent, or not of now."""


class _Groups:
    """Values that the runs of a group share, of the newest groups whose runs come to this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[str, str | None], dict[object, Any]] = OrderedDict()

    def of(self, task_id: str, group_id: str | None) -> dict[object, Any]:
        """Return what the runs of a group share; of all groups of its task where its id is not known."""
        name = task_id, group_id
        with self._lock:
            shared = self._groups[name] = self._groups.pop(name, {})
            while len(self._groups) > MOST_GROUPS:
                self._groups.popitem(last=False)
            return shared


_groups = _Groups()


@contextmanager
def replay(
    task_id: str, run_id: int, base_url: str | None = None, *, group_id: str | None = None
) -> Iterator[GuardedReplay]:
    """Run a block as a replay: calls through our HTTP clients go to the run, and `is_replay()` is true.

    Threads and pools that the block starts carry it (`instrument_threads`). Run the agent to its end inside the block:
    what goes on after it is refused its calls and its guarded tools.

    Guarded tools block, or run on their sandbox or fallback, for nothing of production's call is known here. What
    became of them is in `side_effects` of what this yields. If its `problem` is set at the end, such as by a simulated
    user that failed, answer with `{"error": problem.why}`.

    Args:
        task_id, run_id, base_url: as the webhook's request says. Calls go to the sidecar of `configure`, so `base_url`
            is only checked to be that run's.
        group_id: likewise. Runs of a group share the budget of a simulated user; without it, all runs of the task do.

    Raises:
        ValueError: `base_url` is another run's.
    """
    path = Replay(task_id, run_id).path
    if base_url is not None and not urlsplit(base_url).path.rstrip("/").endswith(path):
        raise ValueError(f"base_url: expected an address that ends in {path}, found {base_url!r}")
    run = GuardedReplay(task_id, run_id, group=_groups.of(task_id, group_id))
    with instrumented(), entered(Context(task_id=task_id, replay=run)), closing(run.sandboxes):
        yield run


def verify_webhook(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str,
    tolerance: float = 300.0,
    *,
    clock: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """The content of a webhook's request, once it is sure that the sidecar has sent it.

    The signature is that of Standard Webhooks (https://www.standardwebhooks.com), an HMAC-SHA256 over the id, the
    timestamp and the body. Nothing is kept of the ids: within the tolerance a request could come twice, and the
    sidecar refuses the end of a run that has ended.

    Args:
        body: as it came, not parsed.
        headers: `webhook-id`, `webhook-timestamp` and `webhook-signature`, in any case.
        secret: of the sidecar's configuration: `runs.webhook.secret`, or that of a receiver in `webhooks.receivers`.
        tolerance: seconds that the request may be old, or ahead.
        clock: Unix seconds.

    Raises:
        ValueError: the secret is none.
        WebhookError: a header is missing, the signature is wrong, the request is too old, or its body no JSON object.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        identity, sent, signatures = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise WebhookError(f"the header {missing.args[0]} is missing") from None
    raw = body.encode() if isinstance(body, str) else body
    expected = hmac.new(
        _key(secret), f"{identity}.{sent}.".encode("utf-8", "surrogateescape") + raw, hashlib.sha256
    ).digest()
    if not any(hmac.compare_digest(expected, found) for found in _signatures(signatures)):
        raise WebhookError("webhook-signature: no signature is right; is the secret the sidecar's own?")
    try:
        age = clock() - int(sent)
    except ValueError:
        raise WebhookError(f"webhook-timestamp: expected Unix seconds, found {sent!r}") from None
    if abs(age) > tolerance:
        raise WebhookError(
            f"webhook-timestamp: {abs(age):.0f} seconds {'old' if age > 0 else 'ahead'}, at most {tolerance:g}"
        )
    try:
        content = json.loads(raw)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise WebhookError("the body is no JSON object")
    return content


def _key(secret: str) -> bytes:
    if not secret:
        raise ValueError("secret: expected the sidecar's own, found nothing, which anybody could sign with")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise ValueError("secret: what follows whsec_ is not base64") from None


def _signatures(header: str) -> Iterator[bytes]:
    for each in header.split():
        version, _, text = each.partition(",")
        if version == "v1":
            try:
                yield base64.b64decode(text, validate=True)
            except ValueError:
                continue
