"""The file in which a program of the sidecar says what runs, for `slipstream upgrade` and for the first program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from slipstream.serve.handover import Half


class Running(BaseModel):
    """State of a program that runs, or ran last.

    Attributes:
        pid: process id of the program that serves, which takes the signals.
        namespace: the namespace in which that number means something: a container has one of its own.
        generation: successors since the start.
        release: version of the package that it runs.
        attempts: replacements that were asked for and have ended, well or not.
        problem: reason for which the last one failed.
    """

    model_config = ConfigDict(frozen=True)

    pid: int
    namespace: str
    release: str
    generation: int = 0
    attempts: int = 0
    problem: str | None = None

    @classmethod
    def here(cls, release: str) -> Self:
        """This process serves."""
        return cls(pid=os.getpid(), namespace=namespace(), release=release)

    def succeeded(self, pid: int, release: str) -> Self:
        """A successor serves."""
        generation, attempts = self.generation + 1, self.attempts + 1
        changed = {"pid": pid, "release": release, "generation": generation, "attempts": attempts, "problem": None}
        return self.model_copy(update=changed)

    def failed(self, reason: str) -> Self:
        """No successor serves."""
        return self.model_copy(update={"attempts": self.attempts + 1, "problem": reason})


def namespace() -> str:
    """The namespace of this process's id."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def file_of(folder: Path, half: Half) -> Path:
    return folder / f"{half}.json"


def note(file: Path, running: Running) -> None:
    """Write what runs; a reader sees the whole text of before or of after."""
    fresh = file.with_suffix(".new")
    fresh.write_text(running.model_dump_json(), encoding="utf-8")
    fresh.replace(file)


def read(file: Path) -> Running | None:
    """Return what the file says; None if there is none, or no whole one."""
    try:
        return Running.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
