"""The lane of one machine: one more embedded Explorer, which follows the directory that versions are put into."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from slipstream.config.address import local_url
from slipstream.embedded.config import load_config
from slipstream.errors import ConfigError
from slipstream.local.supervisor import Child
from slipstream.settings.serving import Lane, Serving

OVERLAY = "lane.yaml"
"""In the lane's directory; it says in which ways the lane's Explorer differs from the policy's."""

_INTERVAL = 1
"""Seconds between two looks for a version: a rollout waits for it."""


def lane(serving: Serving, explorer: Path, command: Sequence[str], overlays: Sequence[Path]) -> list[Child]:
    """The lane's program, where there is one to be run. Its overlay is written into the lane's directory.

    Args:
        explorer: the file of the policy's Explorer, which is the lane's too.
        command: `slipstream` with its options.
        overlays: merged over the file, before the lane's own.

    Raises:
        ConfigError: the lane is not on this machine, or the file is wrong.
    """
    if serving.mode == "off" or serving.lane is None or serving.lane.directory is None:
        return []
    directory, port = serving.lane.directory.absolute(), _port(serving.lane)
    if not directory.parent.name:
        raise ConfigError(f"serving.lane.directory: expected a folder within another one, found {directory}")
    directory.mkdir(parents=True, exist_ok=True)
    own = directory / OVERLAY
    own.write_text(json.dumps(_fields(directory, port), indent=1), encoding="utf-8")  # which is YAML
    merged = (*overlays, own)
    config = load_config(explorer, "serve", merged)
    return [
        Child(
            name="lane",
            command=(
                *command, "explorer", "--config", str(explorer),
                *(word for overlay in merged for word in ("--overlay", str(overlay))),
            ),
            ready_url=f"{local_url(config.explorer.listen_address, config.explorer.proxy_port)}/health",
            vital=False,  # users are answered by production without it
        )
    ]  # fmt: skip


def _fields(directory: Path, port: int) -> dict[str, object]:
    """Fields that give the Explorer this directory, this port, and nothing of the policy's own database."""
    return {
        "checkpoint_root_dir": str(directory.parent.parent),
        "project": directory.parent.name,
        "group": "",
        "name": directory.name,
        "explorer": {
            "listen_address": "127.0.0.1",
            "proxy_port": port,
            "service_status_check_interval": _INTERVAL,
            "record_experiences": False,  # what users are answered here is trained on by nobody
        },
        "buffer": {"trainer_input": {"experience_buffer": {"path": None}}},
    }


def _port(lane: Lane) -> int:
    url = urlsplit(lane.base_url)
    if (url.scheme, url.hostname, url.path) != ("http", "127.0.0.1", "/v1") or url.port is None:
        raise ConfigError(
            f"serving.lane.base_url: expected http://127.0.0.1:PORT/v1, where `slipstream up` runs the lane of "
            f"serving.lane.directory; found {lane.base_url}"
        )
    return url.port
