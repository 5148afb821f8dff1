"""The configuration of a world's sidecars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.schedule import Schedule
from slipstream.access.keys import as_hash

CALCULATED = 0.5
"""The reward that the calculator gives."""


def sidecar_settings(
    schedule: Schedule, port: int, store_url: str, host: str, links: Mapping[str, int], headers: Mapping[str, str]
) -> dict[str, Any]:
    """Timeouts short enough for a fault of some seconds to outlast each of them.

    Args:
        host: by which production is known.
        links: the ports of what is between the sidecars and the others.
        headers: what requests carry: the key, where one is asked for.
    """
    settings: dict[str, Any] = {
        "listen": f"127.0.0.1:{port}",
        "proxy": {"workers": schedule.workers},
        "production": {
            "base_url": f"http://{host}:{links['production']}/v1",
            "connect_timeout": "1s",
            "first_byte_timeout": "1500ms",
            "idle_timeout": "1s",
        },
        "explorer": {
            "base_url": f"http://127.0.0.1:{links['explorer']}",
            "poll_interval": "100ms",
            "connect_timeout": "500ms",
            "commit_timeout": "2s",
        },
        "store": {"url": store_url, "lease": "2s"},
        "capture": {"task_idle": "500ms"},
        "selection": {"sampling": {"rate": 1.0}},
        "runs": {
            "repeat_time": 2,
            "concurrency": 4,
            "queue": 10_000,
            "timeout": "1500ms",
            "max_attempts": 3,
            "replay_timeout": "4s",
        },
        "rewards": {"calculators": [{"constant": {"value": CALCULATED}}]},
        "commit": {"interval": "200ms"},
        "facade": {"timeout": "1500ms", "retry_for": "1s", "group_idle": "500ms", "group_size": 2},
        "log": {"level": "info"},
    }
    if schedule.has("poison"):
        if not schedule.webhook:  # whose agents are to get the calculator's reward
            settings["rewards"]["calculators"] += ["format"]
        settings["isolation"] = {"content_timeout": "500ms"}
    if headers:
        one = {"name": "everybody", "roles": ["admin"], "hash": as_hash(headers["x-slipstream-key"])}
        settings["access"] = {"keys": [one]}
    if schedule.encrypted:
        settings["store"]["encryption_key"] = "${STORE_ENCRYPTION_KEY}"
    if schedule.webhook:
        settings["runs"] |= {
            "mode": "webhook",
            "webhook": {
                "url": f"http://127.0.0.1:{links['endpoint']}/replay",
                "secret": "${WEBHOOK_SECRET}",
                "timeout": "4s",
                "allow_private": ["127.0.0.1"],
            },
        }
    return settings
