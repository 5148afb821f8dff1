"""Descriptors that a program of the sidecar gives the one that takes its place, and messages of that one."""

from __future__ import annotations

import contextlib
import os
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_VARIABLE = "_SLIPSTREAM_HANDOVER"
"""Variable of the environment. It has a line in front, as those of the configuration begin with SLIPSTREAM_."""

WORKERS, READY, FAILED = "workers", "ready", "failed"
"""Messages of a successor: its workers take connections; its training side works; it cannot start, and why."""


class Half(StrEnum):
    """Part of the sidecar that one program runs."""

    SERVE = "serve"
    PROXY = "proxy"
    TRAINING = "training"

    @property
    def proxies(self) -> bool:
        """Return whether agents are answered by it."""
        return self is not Half.TRAINING

    @property
    def trains(self) -> bool:
        """Return whether the stages and the control API are in it."""
        return self is not Half.PROXY


class Handover(BaseModel):
    """Descriptors and paths that a successor starts with.

    Attributes:
        folder: of the Unix sockets.
        temporary: it is removed at the end.
        agents, control, captures: listening sockets.
        listen: address of `agents` in the configuration; None if a socket unit of systemd has it.
        counters: of `shared_in_memory`; None if they are a file in the folder.
        answers: end of a pipe to which the successor writes its messages, one a line.
        first: end of a pipe whose other end the program that was started first holds until its death.
    """

    model_config = ConfigDict(frozen=True)

    folder: Path
    temporary: bool
    agents: tuple[int, ...]
    listen: str | None
    control: int | None
    captures: int | None
    counters: int | None
    answers: int
    first: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        several = (*self.agents, self.control, self.captures, self.counters, self.answers, self.first)
        return tuple(descriptor for descriptor in several if descriptor is not None)

    def environment(self) -> dict[str, str]:
        """The environment of the successor."""
        return {**os.environ, _VARIABLE: self.model_dump_json()}

    def say(self, message: str, reason: str = "") -> None:
        """Tell the predecessor; one that is gone is told nothing."""
        with contextlib.suppress(OSError):
            os.write(self.answers, f"{message} {' '.join(reason.split())}".rstrip().encode()[:4000] + b"\n")


def inherited() -> Handover | None:
    """The handover of the predecessor that started this process, if one did; its descriptors are not passed on."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    handover = Handover.model_validate_json(text)
    for descriptor in handover.descriptors:
        os.set_inheritable(descriptor, False)
    return handover
