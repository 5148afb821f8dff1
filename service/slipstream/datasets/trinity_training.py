"""Training on a data set by Trinity-RFT: a side job, and the move of what it trained into the policy's job.

The order is what makes it safe to kill: the run is noted (`side_run`), Trinity trains with checkpoints, its last step
is moved into the policy's job (`side_version`), experiences of the policy before are discarded, the run's folder is
deleted. What was done of this is found again, and nothing is done twice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import structlog

from slipstream.config.yaml_text import read_yaml
from slipstream.datasets.config import Train
from slipstream.datasets.row import Kind, Row
from slipstream.datasets.trained_dataset import Outcome, Start, TrainedDataset, parent_of
from slipstream.datasets.trinity_check import RowCheck
from slipstream.datasets.trinity_rows import TrinityRows, write_rows
from slipstream.errors import ConfigError
from slipstream.trinity import side_job, side_version
from slipstream.trinity.checkpoint_files import VERSION_MARKER, marked, step_directory, steps
from slipstream.trinity.document import load_document
from slipstream.trinity.job import job_directory, trainer_lock
from slipstream.trinity.launch import launch
from slipstream.trinity.noted_run import RunError
from slipstream.trinity.ray import find_program
from slipstream.trinity.side_job import Algorithm, SideJob
from slipstream.trinity.side_metrics import read_metrics
from slipstream.trinity.side_run import SideRun, model_directory
from slipstream.trinity.waiting_experiences import discard_outside

log = structlog.get_logger(__name__)

_OF_KIND: Mapping[Kind, Algorithm] = {Kind.SFT: "sft", Kind.PREFERENCE: "dpo"}


@dataclass(frozen=True)
class TrainerFiles:
    """Files of a run, read.

    Attributes:
        training: the Trainer's file with all overlays of `data.yaml`.
        policy: the same as the policy's own Trainer has it.
        environment: of Trinity.
    """

    training: Mapping[str, Any]
    policy: Mapping[str, Any]
    environment: Mapping[str, str]

    @classmethod
    def read(cls, train: Train, environment: Mapping[str, str]) -> Self:
        """Read the files that `data.yaml` names. Overlays before the first that is of training on data sets are taken
        to be the policy's own too.

        Raises:
            ConfigError: one cannot be read, or a variable is not set; names the file and the key.
        """
        own = list(itertools.takewhile(lambda path: not _is_of_data_sets(path), train.overlays))
        return cls(load_document(train.trainer, train.overlays), load_document(train.trainer, own), environment)


def train_rows(files: TrainerFiles, rows: Iterable[Row], dataset: TrainedDataset, *, resume: bool = False) -> Outcome:
    """Train on rows with Trinity-RFT, and publish the result as the next version of the policy's job.

    SIGTERM or SIGINT ends Trinity; `resume` then goes on from its last full checkpoint (`trainer.save_interval`).

    Args:
        rows: of the training split; read once.
        resume: go on with the run that was begun and not ended.

    Raises:
        ConfigError: a key is wrong, the kind has no algorithm of Trinity's, or the policy's Trainer could not resume
            from the result.
        RunError: a run is half done and `resume` is not given, or the other way round; or training failed, with
            the last lines that Trinity wrote.
        TrainerRuns: a Trainer runs on this job.
        SlipstreamError: Trinity or Ray is missing, or no row can be trained on.
    """
    algorithm = _OF_KIND.get(dataset.kind)
    if algorithm is None:
        raise ConfigError(f"dataset.kind: expected sft or preference with train.engine trinity, found {dataset.kind}")
    side_job.check(files.training, algorithm)
    side_job.check_resumable(files.policy, files.training)
    for program in ("trinity", "ray"):
        find_program(program)
    job_dir = job_directory(files.policy)
    with trainer_lock(job_dir):
        begun = SideRun.load(job_dir)
        if begun is not None and begun.is_in_place(job_dir):
            if not begun.is_published(job_dir):
                side_version.finish(begun, job_dir)
            done = _end(files, begun, job_dir)
            if resume:
                log.info("this run was trained before it was stopped", version=begun.version)
                return done
            begun = None
        SideRun.check(begun, dataset.name, job_dir, resume=resume)
        with SideRun.starting(job_dir):
            return _run(files, algorithm, rows, dataset, begun)


def _run(
    files: TrainerFiles, algorithm: Algorithm, rows: Iterable[Row], dataset: TrainedDataset, begun: SideRun | None
) -> Outcome:
    job_dir = job_directory(files.policy)
    newest = marked(job_dir, VERSION_MARKER) or 0  # the Trainer's: after a restart it counts from its last full step
    parent = begun.parent if begun else parent_of(dataset.start, newest)
    model = _model(files.policy, parent, dataset.start)
    folder = SideRun.folder_of(job_dir)
    if begun is None:
        shutil.rmtree(folder, ignore_errors=True)
    buffer = files.training["buffer"]
    written = write_rows(
        rows, dataset, folder / "rows", RowCheck(files.training, model, algorithm),
        batch=buffer["train_batch_size"], epochs=buffer.get("total_epochs") or 1,
        most=(files.training.get("trainer") or {}).get("total_steps"),
    )  # fmt: skip
    run = begun or SideRun(
        id=uuid.uuid4().hex,
        dataset=dataset.name,
        digest=_digest(files.training, dataset, written),
        parent=parent,
        # above what the Explorer serves: it takes higher numbers only, and the step that it serves is never deleted
        version=max(newest, *steps(job_dir), 0) + 1,
        steps=written.steps,
        newest=newest,
        rows=buffer["train_batch_size"],
        folder=folder,
        parent_at=SideRun.written_at(job_dir, parent),
    )
    run.check_digest(_digest(files.training, dataset, written))
    document = side_job.document(
        files.training, algorithm, SideJob(run.folder, model, written.folder, run.steps, run.id)
    )
    run.save()  # from here on it is half done
    if run.done() < run.steps and not _train(run, document, files.environment):
        shutil.rmtree(written.folder, ignore_errors=True)  # made anew at the next start, from what is there then
        shutil.rmtree(run.cache, ignore_errors=True)
        return Outcome(None, parent, run.done(), left_out=written.left_out)
    metrics = read_metrics(run.board)
    said = {
        "algorithm": algorithm,
        "dataset": dataset.said(written.rows, written.sources, written.left_out),
        "epochs": buffer.get("total_epochs") or 1,
        "steps": run.steps,
        "metrics": metrics,
        "warning": None,
    }
    side_version.publish(run, job_dir, said, (files.policy.get("algorithm") or {}).get("optimizer") or {})
    done = _end(files, run, job_dir)
    return replace(done, left_out=written.left_out, metrics=metrics)


def _train(run: SideRun, document: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Run Trinity to the last step; return False if a signal ended it before."""
    run.prepare()
    log.info(
        "Trinity trains on a data set",
        dataset=run.dataset, step=run.done(), steps=run.steps, parent=run.parent, version=run.version, log=str(run.log),
    )  # fmt: skip
    failed = run.failures()
    with run.log.open("ab") as output:
        # `datasets` copies what it reads: the copy is to end with the run
        code = launch(document, {**environment, "HF_DATASETS_CACHE": str(run.cache)}, output)
    if run.failures() > failed:
        run.forget_last()
        raise RunError(
            f"a training step of Trinity failed; --resume goes on after step {run.done()}. It wrote to {run.log}:\n"
            f"{run.last_lines()}"
        )
    if code == 0:
        return run.done() >= run.steps
    raise RunError(
        f"Trinity ended after step {run.done()} of {run.steps}; --resume goes on from there. It wrote to {run.log}:\n"
        f"{run.last_lines()}"
    )


def _end(files: TrainerFiles, run: SideRun, job_dir: Path) -> Outcome:
    """End a run whose version is published: what other versions sampled is not what this one would say.

    Those that the Trainer made of it since, if the run is ended late, are between it and the newest.
    """
    newest = marked(job_dir, VERSION_MARKER) or run.version
    discarded = discard_outside(files.policy, run.version, newest)
    if discarded:
        log.warning(
            "experiences of other versions discarded: they are off-policy now",
            experiences=discarded, version=run.version,
        )  # fmt: skip
    if run.board.is_dir():
        kept = job_dir / "monitor" / "tensorboard" / f"version_{run.version}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        run.board.rename(kept)
    run.end()
    return Outcome(run.version, run.parent, run.steps, discarded=discarded)


def _is_of_data_sets(overlay: Path) -> bool:
    """Return whether an overlay is of training on data sets: the policy's own Trainer is not started with it."""
    section = read_yaml(overlay).get("algorithm") or {}
    return isinstance(section, dict) and section.get("algorithm_type") in _OF_KIND.values()


def _model(policy: Mapping[str, Any], version: int, start: Start) -> Path:
    """Return the Hugging Face directory of a version; of the base model for 0."""
    if version == 0:
        return Path(policy["model"]["model_path"]).absolute()
    job_dir = job_directory(policy)
    found = model_directory(step_directory(job_dir, version))
    if found is None:
        newest = marked(job_dir, VERSION_MARKER) or 0
        there = [each for each in sorted(steps(job_dir)) if each <= newest]
        able = [str(each) for each in there if model_directory(step_directory(job_dir, each))]
        raise ConfigError(
            f"train.start: expected a version with its Hugging Face directory, found version {version} ({start}), of "
            "which Trinity's Trainer saved no full checkpoint (trainer.save_interval, and trainer.save_hf_checkpoint: "
            f"always); those that have one: {', '.join(able) or 'none'}; or base"
        )
    return found


def _digest(training: Mapping[str, Any], dataset: TrainedDataset, written: TrinityRows) -> str:
    """Digest all that the weights at the end depend on, but for the weights at the start."""
    settings = {
        "model": training.get("model"),
        "algorithm": training.get("algorithm"),
        "batch": training["buffer"]["train_batch_size"],
        "cluster": training.get("cluster"),
        "dataset": [dataset.name, dataset.digest, dataset.seed, dataset.start],
        "rows": written.digest,
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()
