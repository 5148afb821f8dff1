"""`slipstream rollback N`: go back to version N of the policy, for good.

Writing an older number into the markers is not enough: the embedded Trainer takes what later steps were trained on for
unpublished work, and trains on it again. So those experiences are discarded first, then the markers are set, then the
later steps are moved aside. It may be killed between any two of these: the same command ends what was begun.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import SlipstreamError
from slipstream.trinity.checkpoint_files import TRAINED_ON, is_full, json_object
from slipstream.trinity.document import load_document
from slipstream.trinity.job import job_directory, trainer_lock

_MARKERS = ("latest_checkpointed_iteration.txt", "latest_state_dict_iteration.txt")
_META = "trainer_meta.json"


class RollbackError(SlipstreamError):
    """The rollback was refused, and nothing was changed."""


@dataclass(frozen=True)
class Done:
    """Steps that were moved aside, the folder that they are in, and how many experiences will not be trained on."""

    steps: list[int]
    folder: Path
    discarded: int


def rollback(version: int, config: Path, overlays: Sequence[Path] = ()) -> Done:
    """Make `version` the newest one of the job that a Trainer's file names.

    Raises:
        ConfigError: the file is wrong.
        RollbackError: there is no such version, or none that training can go on from.
        TrainerRuns: the job's Trainer runs.
    """
    job = job_directory(load_document(config, overlays))
    if not job.is_dir():
        raise RollbackError(f"{job}: expected the directory of a job, found nothing")
    with trainer_lock(job):
        later = _check(job, version)
        discarded = _discard(version, config, overlays) if _is_embedded(job / f"global_step_{version}") else 0
        meta = json.loads((job / _META).read_text()) if (job / _META).exists() else {}
        _replace(job / _META, json.dumps({**meta, "latest_iteration": version}))
        for marker in _MARKERS:
            _replace(job / marker, str(version))
        folder = job / "rolled_back" / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        for step in later:
            folder.mkdir(parents=True, exist_ok=True)
            (job / f"global_step_{step}").rename(folder / f"global_step_{step}")
    return Done(later, folder, discarded)


def _check(job: Path, version: int) -> list[int]:
    """The later steps."""
    steps = sorted(int(found[1]) for path in job.iterdir() if (found := re.fullmatch(r"global_step_(\d+)", path.name)))
    marker = job / _MARKERS[1]
    newest = max([*steps, int(marker.read_text())] if marker.exists() else [*steps, 0])
    there = f"there are {', '.join(map(str, steps)) or 'none'}"
    if version > newest:
        raise RollbackError(f"version {version}: expected one up to {newest}, the newest; {there}")
    if version not in steps:
        raise RollbackError(
            f"version {version} was deleted (trainer.max_checkpoints_to_keep), or never published; {there}"
        )
    step = job / f"global_step_{version}"
    if not _is_embedded(step) and not is_full(step):
        full = [each for each in steps if is_full(job / f"global_step_{each}")]
        raise RollbackError(
            f"version {version} is no full checkpoint (trainer.save_interval), which Trinity's Trainer needs to go on "
            f"from; full ones: {', '.join(map(str, full)) or 'none'}"
        )
    return [each for each in steps if each > version]


def _is_embedded(step: Path) -> bool:
    """Return whether the embedded engine made a version. Trinity's Trainer writes no `trained_on.json`; a version that
    it trained on a data set has one that says so."""
    path = step / TRAINED_ON
    return path.exists() and json_object(path).get("engine") != "trinity"


def _discard(version: int, config: Path, overlays: Sequence[Path]) -> int:
    from slipstream.embedded.config import load_config
    from slipstream.embedded.experiences import ExperienceStore

    settings = load_config(config, "train", overlays)
    store = ExperienceStore(settings.database_url, settings.buffer.trainer_input.experience_buffer.name)
    try:
        return store.discard_after(version)
    finally:
        store.close()


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
