"""Training on the rows of a data set, to a version like any other: `slipstream train --config data.yaml`.

The order is what makes it safe to kill: the run is noted (`dataset_run`), it is trained with checkpoints, its version
is published as one atomic act, experiences of the policy before are discarded, the run's folder is deleted. What was
done of this is found again, and nothing is done twice.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import torch
from transformers import AutoTokenizer
from transformers.trainer import Trainer
from transformers.trainer_callback import PrinterCallback

from slipstream.datasets.row import Row
from slipstream.datasets.row_order import order
from slipstream.datasets.trained_dataset import Outcome, TrainedDataset, parent_of
from slipstream.embedded import checkpoints
from slipstream.embedded.algorithm import DatasetAlgorithm
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_inputs import table_of, trainer_of, weights_of
from slipstream.embedded.dataset_metrics import StepMetrics
from slipstream.embedded.dataset_run import EmbeddedRun
from slipstream.embedded.dataset_trainers import TrainedRows, comparable, quiet, steps_of
from slipstream.embedded.device import device
from slipstream.embedded.durable_steps import DurableSteps
from slipstream.embedded.experiences import ExperienceStore
from slipstream.embedded.model_directory import check_model_directory
from slipstream.embedded.monitor.board import check_monitor, open_board
from slipstream.embedded.monitor.run import Lineage
from slipstream.embedded.policy_model import export, export_dtype, quantization, with_full_weights
from slipstream.embedded.token_table import TokenTable
from slipstream.embedded.training_process import settle, stopped_by_signals
from slipstream.trinity.job import trainer_lock
from slipstream.trinity.noted_run import RunError

log = structlog.get_logger(__name__)


def train_rows(config: EngineConfig, rows: Iterable[Row], dataset: TrainedDataset, *, resume: bool = False) -> Outcome:
    """Train on rows and publish the result as the job's next version.

    It ends after the last step, or after the running one at SIGTERM or SIGINT; `resume` then goes on.

    Args:
        config: a `trainer.yaml` whose algorithm is the one of the data set's kind.
        rows: of the training split; read once.
        resume: go on with the run that was begun and not ended.

    Raises:
        ConfigError: a setting cannot be trained with, or the monitor's library is missing; names the key.
        RunError: a run is half done and `resume` is not given, or the other way round; or no row can be trained on.
        CheckpointError: the version to start from is not there.
        TrainerRuns: a Trainer runs on this job.
    """
    algorithm = config.algorithm.on_dataset(dataset.kind)
    check_model_directory(config.model.model_path)
    check_monitor(config)
    settle()
    stop = threading.Event()
    with stopped_by_signals(stop), trainer_lock(config.job_dir):
        begun = EmbeddedRun.load(config.job_dir)
        if begun is not None and begun.is_published(config.job_dir):
            outcome = _end(config, begun)
            if resume:
                log.info("this run was published before it was stopped", version=begun.version)
                return outcome
            begun = None
        EmbeddedRun.check(begun, dataset.name, config.job_dir, resume=resume)
        with EmbeddedRun.starting(config.job_dir):
            return _Training(config, algorithm, dataset, stop).run(rows, begun)


class _Training:
    """One run, from its rows to its version."""

    def __init__(
        self, config: EngineConfig, algorithm: DatasetAlgorithm, dataset: TrainedDataset, stop: threading.Event
    ) -> None:
        self._config = config
        self._algorithm: DatasetAlgorithm = algorithm
        self._dataset = dataset
        self._stop = stop

    def run(self, rows: Iterable[Row], begun: EmbeddedRun | None) -> Outcome:
        config, dataset = self._config, self._dataset
        newest = checkpoints.latest_version(config.job_dir) or 0
        parent = begun.parent if begun else parent_of(dataset.start, newest)
        weights = weights_of(config, parent)
        folder = EmbeddedRun.folder_of(config.job_dir)
        if begun is None:
            shutil.rmtree(folder, ignore_errors=True)
        table = table_of(config, dataset, rows, weights, folder / "rows")
        drawn = order(table.weights, config.buffer.total_epochs, dataset.seed)
        taken = comparable(config, self._algorithm, drawn, table.longest)
        run = begun or EmbeddedRun(
            id=uuid.uuid4().hex,
            dataset=dataset.name,
            digest=self._digest(table),
            parent=parent,
            version=newest + 1,
            steps=steps_of(config, len(taken)),
            folder=folder,
            parent_at=EmbeddedRun.written_at(config.job_dir, parent),
        )
        run.check_digest(self._digest(table))
        # no more than is trained on: with rows left, a Trainer that resumes at its last step makes one step more
        taken = taken[: run.steps * config.buffer.train_batch_size]
        data = TrainedRows(table.dataset, taken, table.longest, table.shared)
        with quiet():
            trainer = trainer_of(config, self._algorithm, weights, data, run.steps_folder, dataset.seed)
            run.save()  # from here on it is half done
            log.info(
                "training on a data set",
                dataset=dataset.name,
                algorithm=self._algorithm,
                rows=len(table.weights),
                left_out=table.left_out,
                steps=run.steps,
                parent=run.parent,
                version=run.version,
            )
            with closing(self._metrics(run)) as metrics:
                return self._train(trainer, run, table, weights, metrics)

    def _digest(self, table: TokenTable) -> str:
        """Digest all that the weights at the end depend on, but for the weights at the start."""
        config, dataset = self._config, self._dataset
        settings = {
            "model": config.model.model_dump(mode="json"),
            "algorithm": config.algorithm.model_dump(mode="json"),
            "buffer": [config.buffer.train_batch_size, config.buffer.total_epochs],
            "trainer": [config.trainer.total_steps, config.trainer.max_token_len_per_gpu, config.trainer.dtype],
            "dataset": [dataset.name, dataset.digest, dataset.seed, dataset.start],
            "rows": table.digest,
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def _metrics(self, run: EmbeddedRun) -> StepMetrics:
        config = self._config
        beta = None if self._algorithm == "sft" else config.algorithm.policy_loss_fn_args.beta
        folder = config.job_dir / "monitor" / "tensorboard" / f"version_{run.version}"
        return StepMetrics(lambda step: open_board(config, folder, step, self._lineage(run)), beta)

    def _lineage(self, run: EmbeddedRun, version: int | None = None) -> Lineage:
        return Lineage(run.parent, version, self._dataset.name, self._dataset.digest)

    def _train(
        self, trainer: Trainer, run: EmbeddedRun, table: TokenTable, weights: Path, metrics: StepMetrics
    ) -> Outcome:
        config = self._config
        trainer.add_callback(metrics)
        trainer.add_callback(DurableSteps(self._stop, config.trainer.save_interval))
        trainer.remove_callback(PrinterCallback)
        checkpoint = run.newest_checkpoint()
        if checkpoint is not None:
            log.info("going on", checkpoint=checkpoint.name)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        steps = trainer.state.global_step
        if steps < run.steps:
            log.info("stopped: --resume goes on", step=steps, of=run.steps)
            shutil.rmtree(run.rows, ignore_errors=True)  # made anew at the next start, from what is there then
            return Outcome(None, run.parent, steps, len(table.weights), table.left_out)
        model: Any = trainer.model
        if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
            run.end()  # to go on would end the same
            raise RunError(
                f"after {steps} steps the weights are no finite numbers, and no version was published: a smaller "
                "algorithm.optimizer.lr, or lr_warmup_steps"
            )
        summary = metrics.summary()
        self._publish(
            run,
            partial(self._save, trainer.model, weights),
            {
                "dataset": self._dataset.said(len(table.weights), table.sources, table.left_out),
                "epochs": config.buffer.total_epochs,
                "steps": steps,
                "metrics": summary,
                "warning": metrics.warning,
            },
        )
        metrics.published(self._lineage(run, run.version))
        done = _end(config, run)
        return Outcome(
            run.version, run.parent, steps, len(table.weights), table.left_out, summary, done.discarded, metrics.warning
        )

    def _save(self, model: Any, weights: Path, path: Path) -> None:
        if quantization(self._config) is not None:
            model = with_full_weights(model, weights)
        # the tokenizer as it was: TRL gives one without a token for padding one
        export(model, AutoTokenizer.from_pretrained(weights), export_dtype(self._config, device()), path)

    def _publish(self, run: EmbeddedRun, save: Callable[[Path], None], said: Mapping[str, Any]) -> None:
        config = self._config
        with _store(config) as store:
            # taken by a step of this number that was never published: it would pass for trained
            store.release_after(run.version - 1)
        checkpoints.publish(
            config.job_dir,
            run.version,
            save,
            trained_on=run.trained_on(algorithm=self._algorithm, **said),
        )
        checkpoints.prune(config.job_dir, config.trainer.max_checkpoints_to_keep)


def _end(config: EngineConfig, run: EmbeddedRun) -> Outcome:
    """End a run whose version is published: what earlier versions sampled is not what this one would say."""
    with _store(config) as store:
        discarded = store.discard_before(run.version)
    if discarded:
        log.warning(
            "experiences of earlier versions discarded: they are off-policy now",
            experiences=discarded,
            version=run.version,
        )
    run.end()
    return Outcome(run.version, run.parent, run.steps, discarded=discarded)


@contextmanager
def _store(config: EngineConfig) -> Iterator[ExperienceStore]:
    store = ExperienceStore(config.database_url, config.buffer.trainer_input.experience_buffer.name)
    try:
        yield store
    finally:
        store.close()
