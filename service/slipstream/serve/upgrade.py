"""`slipstream upgrade`: has the programs of a sidecar replaced, and says how that went."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from slipstream.errors import ConfigError, SlipstreamError
from slipstream.serve.handover import Half
from slipstream.serve.running import Running, file_of, namespace, read
from slipstream.serve.sockets import claimed
from slipstream.settings.sidecar import Settings

_WITHIN = 420.0
"""Seconds: more than a program gives its successor."""

_LOOK = 0.1


def upgrade(settings: Settings) -> Iterator[str]:
    """Replace what runs on `proxy.sockets`, one program after the other; yields a line about each.

    Raises:
        ConfigError: no program runs there, or none that this command can reach.
        SlipstreamError: a successor did not start; the program before it serves on.
    """
    folder = settings.proxy.sockets
    if folder is None:
        raise ConfigError(
            "proxy.sockets: expected the folder of the running sidecar, found null; without it send SIGUSR2 to the "
            "process of `slipstream serve`"
        )
    found = {half: running for half in Half if (running := _alive(folder, half)) is not None}
    if not found:
        raise ConfigError(f"proxy.sockets: expected the folder of a running sidecar, found none running on {folder}")
    here = {half: running for half, running in found.items() if running.namespace == namespace()}
    if not here:
        others = " and ".join(f"`slipstream {half}`" for half in found)
        raise ConfigError(f"proxy.sockets: {others} of {folder} runs in another container: run this command there")
    for half, running in here.items():
        done = _replaced(file_of(folder, half), half, running)
        yield f"slipstream {half}: version {done.release} serves, process {done.pid}"


def _alive(folder: Path, half: Half) -> Running | None:
    try:
        os.close(claimed(folder, half))
    except ConfigError:
        return read(file_of(folder, half))
    except OSError:
        return None
    return None


def _replaced(file: Path, half: Half, before: Running) -> Running:
    os.kill(before.pid, signal.SIGUSR2)
    ends_at = time.monotonic() + _WITHIN
    while time.monotonic() < ends_at:
        now = read(file)
        if now is not None and now.attempts > before.attempts:
            if now.problem is not None:
                raise SlipstreamError(f"slipstream {half}: not replaced, the one before serves on: {now.problem}")
            return now
        time.sleep(_LOOK)
    raise SlipstreamError(f"slipstream {half}: no word from process {before.pid} within {_WITHIN:.0f} s; see its log")
