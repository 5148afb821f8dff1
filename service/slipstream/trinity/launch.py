"""`slipstream trinity`: runs one service of Trinity-RFT, and tells by its exit code how that ended.

`trinity run` exits with 0 whatever happened: a quiet night and a failed training step end it like a finished training.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from threading import Event
from typing import IO, Any

import structlog
import yaml

from slipstream.errors import ConfigError
from slipstream.trinity.job import job_directory, trained_steps, trainer_lock
from slipstream.trinity.old_checkpoints import OldCheckpoints
from slipstream.trinity.process import Program
from slipstream.trinity.ray import cluster, find_program

log = structlog.get_logger(__name__)

FAILED = 1  # Trinity said so itself
UNFINISHED = 3  # Trinity ended as if all were well, with work left: start it again

_STOP_GRACE = 60.0  # seconds: Trinity ends its engines
_POLL = 0.5


def as_yaml(document: Mapping[str, Any]) -> str:
    """The document as `trinity run --config` reads it. It holds what the variables held: passwords too."""
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)


def launch(document: Mapping[str, Any], environment: Mapping[str, str], output: IO[bytes] | None = None) -> int:
    """Runs Trinity on the document until it ends or SIGTERM, SIGINT or SIGHUP comes, on a Ray that is there or its own.

    Args:
        output: a file that Trinity and its Ray write to; None for where we write.

    Returns:
        The exit code: 0 when it was told to stop or reached `trainer.total_steps`, FAILED or UNFINISHED.

    Raises:
        ConfigError: the document is not that of an Explorer or a Trainer, an Explorer's has adapters, or it asks for a
            cluster that is not there.
        TrainerRuns: another Trainer runs on this job.
        SlipstreamError: Trinity or Ray is not installed, or Ray cannot be had.
    """
    mode = document.get("mode")
    if mode not in ("serve", "train"):
        raise ConfigError(f"mode: expected serve (an Explorer) or train (a Trainer), found {mode!r}")
    if mode == "serve" and (document.get("model") or {}).get("lora_configs") is not None:
        raise ConfigError(
            "model.lora_configs: expected none in an Explorer's file: Trinity-RFT would answer with the first model, "
            "whatever version it names"
        )
    trinity = find_program("trinity")
    held = trainer_lock(job_directory(document)) if mode == "train" else contextlib.nullcontext()
    with (
        held,
        _stop_signals() as stop,
        _file(document) as path,
        cluster(document, environment, stop, output) as surroundings,
    ):
        if stop.is_set():
            return 0
        old = OldCheckpoints(document)
        old.delete()
        # SIGINT: Python ends it as an exception, so that Trinity shuts its actors down; SIGTERM would skip that.
        command = [trinity, "run", "--config", path]
        with Program(command, surroundings, _STOP_GRACE, ask=signal.SIGINT, output=output) as program:
            while (code := program.ended()) is None and not stop.is_set():
                stop.wait(_POLL)
                old.delete()
    return 0 if code is None else _verdict(document, code)


def _verdict(document: Mapping[str, Any], code: int) -> int:
    """Return the exit code for a Trinity that ended by itself."""
    job = job_directory(document)
    if code != 0:
        log.error("Trinity failed", exit_code=code, logs=str(job / "log"))
        return FAILED
    if document["mode"] == "serve":
        log.error("the Explorer ended by itself, which it never should", logs=str(job / "log"))
        return UNFINISHED
    trainer = document.get("trainer") or {}
    total, steps = trainer.get("total_steps"), trained_steps(job, trainer.get("name", "trainer"))
    if total and steps >= total:
        log.info("training has finished", steps=steps)
        return 0
    log.warning(
        "training ended before its end: no full batch came for max_read_timeout seconds, or a training step failed",
        steps=steps,
        total_steps=total,
        logs=str(job / "log"),
    )
    return UNFINISHED


@contextlib.contextmanager
def _stop_signals() -> Iterator[Event]:
    stop = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
        elif number == signal.SIGINT:  # in a script's background, as SIGHUP is under nohup
            # not by SIG_IGN, which Trinity would inherit: it could not be asked to end
            signal.signal(number, lambda *_: None)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _file(document: Mapping[str, Any]) -> Iterator[str]:
    """Readable by this user alone."""
    with tempfile.NamedTemporaryFile("w", prefix="slipstream-", suffix=".yaml", encoding="utf-8") as file:
        file.write(as_yaml(document))
        file.flush()
        os.fsync(file.fileno())
        yield file.name
