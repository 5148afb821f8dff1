"""Files that Explorer and Trainer of a job leave in its directory, whichever engine they are."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError


class TrainerRuns(SlipstreamError):
    """A Trainer runs on the job, and what was asked for is only safe without it."""


@contextlib.contextmanager
def trainer_lock(job: Path) -> Iterator[None]:
    """Hold a job as its Trainer does while it runs; the lock ends with the process that has it.

    Raises:
        TrainerRuns: another process has it.
    """
    job.mkdir(parents=True, exist_ok=True)
    with (job / ".trainer.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainerRuns(f"{job}: a Trainer runs on this job; stop it first") from None
        yield


def job_directory(document: Mapping[str, Any]) -> Path:
    """`checkpoint_root_dir/project/group/name`, absolute, with Trinity's defaults for what is not there."""
    parts = (document.get("project", "Trinity-RFT"), document.get("group", ""), document.get("name", "rft"))
    return Path(document.get("checkpoint_root_dir") or "").absolute().joinpath(*map(str, parts))


def trained_steps(job: Path, trainer: str = "trainer") -> int:
    """Training steps when the Trainer of this name last saved; 0 before that."""
    meta = job / f"{trainer}_meta.json"
    return int(json.loads(meta.read_text())["latest_iteration"]) if meta.exists() else 0
