"""The programs of `slipstream up`: Explorer, Trainer, lane and sidecar of one machine, as children of a supervisor."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from slipstream import shutdown
from slipstream.config.address import local_url
from slipstream.embedded.config import EngineConfig, load_config
from slipstream.embedded.model_directory import check_model_directory
from slipstream.errors import ConfigError
from slipstream.local.lane import lane
from slipstream.local.supervisor import Child
from slipstream.settings.listen import Listen
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings
from slipstream.trinity.job import trained_steps


def children(
    sidecar: Path,
    explorer: Path,
    trainer: Path,
    options: Sequence[str] = (),
    overlays: Sequence[Path] = (),
    production: Path | None = None,
) -> tuple[Child, ...]:
    """The programs in the order of their start; the sidecar is stopped first, while its Explorer is there.

    Args:
        options: of the `slipstream` command, put before each subcommand.
        overlays: merged over the Explorer's file and over the Trainer's.
        production: a model directory to serve at `production.base_url`; None where production runs elsewhere.

    Raises:
        ConfigError: one of the files is wrong, which is better said before anything runs.
    """
    settings = load_settings(sidecar, os.environ)
    serving = load_config(explorer, "serve", overlays)
    training = load_config(trainer, "train", overlays)
    command = (sys.executable, "-uP", "-m", "slipstream", *options)
    merged = [word for overlay in overlays for word in ("--overlay", str(overlay))]
    beside = ("--sidecar", str(sidecar)) if training.algorithm.algorithm_type == "mix" else ()
    return (
        *([_production(production, settings, command)] if production else []),
        Child(
            name="explorer",
            command=(*command, "explorer", "--config", str(explorer), *merged),
            ready_url=f"{local_url(serving.explorer.listen_address, serving.explorer.proxy_port)}/health",
            vital=False,  # nor is the Trainer: production goes through the sidecar without them
        ),
        Child(
            name="trainer",
            command=(*command, "trainer", "--config", str(trainer), *merged, *beside),
            finished=partial(trained, training),
            vital=False,
        ),
        *lane(settings.serving, explorer, command, overlays),
        Child(
            name="sidecar",
            command=(*command, "serve", "--config", str(sidecar)),
            ready_url=_ready_url(settings.listen),
            grace=shutdown.SIDECAR,
        ),
    )


def _ready_url(listen: Listen) -> str | None:
    """The URL at which the sidecar says that it is ready; None where it cannot be asked, because its port is not known
    or it asks for a client certificate."""
    if listen.port == 0 or (listen.tls is not None and listen.tls.client_ca is not None):
        return None
    return f"{local_url(listen.host, listen.port, 'http' if listen.tls is None else 'https')}/readyz"


def _production(model: Path, settings: Settings, command: Sequence[str]) -> Child:
    """The model that answers users, frozen, where `sidecar.yaml` says that production is."""
    url = urlsplit(settings.production.base_url)
    if (url.scheme, url.hostname, url.path) != ("http", "127.0.0.1", "/v1") or url.port is None:
        raise ConfigError(
            f"production.base_url: expected http://127.0.0.1:PORT/v1 with --production; "
            f"found {settings.production.base_url}"
        )
    check_model_directory(str(model), "--production")
    return Child(
        name="production",
        command=(*command, "model", "serve", str(model), "--port", str(url.port)),
        ready_url=f"{local_url('127.0.0.1', url.port)}/health",
    )


def check_models(explorer: Path, trainer: Path, overlays: Sequence[Path]) -> None:
    """Look for the models before a program that cannot load its own is started again and again.

    Raises:
        ConfigError: one of the files is wrong, or names no model directory.
    """
    for config in (load_config(explorer, "serve", overlays), load_config(trainer, "train", overlays)):
        check_model_directory(config.model.model_path)


def trained(config: EngineConfig) -> bool:
    """Return whether a Trainer that exited with 0 reached `total_steps`; otherwise it only had no data for a while."""
    total = config.trainer.total_steps
    return total is not None and trained_steps(config.job_dir) >= total
