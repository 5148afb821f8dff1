"""The embedded Trainer: takes committed experiences, trains, publishes versions for the Explorer.

What makes it safe to kill at any moment is an order: a batch is marked with the step that takes it, the step is
trained in memory, and it counts from the moment its version is published. A Trainer that starts goes on from the
published version and gives back what later steps had taken, so each experience is trained into what is published
once. Every failure that is not the batch's own ends the process, and leaves the rest to the next start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Experience, ExperienceStore
from slipstream.embedded.learning import Learner, Metrics, TaughtRow
from slipstream.embedded.mix_config import mix_of
from slipstream.embedded.monitor.board import check_monitor, open_board
from slipstream.embedded.monitor.run import Lineage
from slipstream.embedded.training_process import settle, stopped_by_signals
from slipstream.trinity.job import trainer_lock

if TYPE_CHECKING:
    from slipstream.embedded.mixed_rows import MixedRows

log = structlog.get_logger(__name__)

_POLL_SECONDS = 0.5  # little against a step
_ATTEMPTS = 3  # a batch that fails this often fails for a reason of its own


def train(config: EngineConfig, held_out: float = 0.0) -> None:
    """Trains until SIGTERM or SIGINT (after the step that runs; a second signal ends it at once), until
    `trainer.total_steps`, or until nothing came for `max_read_timeout`.

    Args:
        held_out: share of the sessions that is held out, whose rows `mix` leaves out.

    Raises:
        ConfigError: the model, the database or the data set of `mix` does not fit, or the monitor's library is
            missing; names the key.
        TrainerRuns: another Trainer runs on this job.
    """
    _ = config.algorithm.online  # one that trains on a data set is refused before the model is loaded
    check_monitor(config)
    settle()
    stop = threading.Event()
    with stopped_by_signals(stop), trainer_lock(config.job_dir):
        Trainer(config, stop, held_out).run()


class Trainer:
    """One run of training; `stop` ends it between two steps."""

    def __init__(self, config: EngineConfig, stop: threading.Event, held_out: float = 0.0) -> None:
        self._config = config
        self._stop = stop
        self._job_dir = config.job_dir
        self._mixed = _mixed_rows(config, held_out)
        self._batch_size = config.buffer.train_batch_size if self._mixed is None else self._mixed.experiences
        self._store = ExperienceStore(config.database_url, config.buffer.trainer_input.experience_buffer.name)
        self._unpublished: list[Experience] = []
        self._metrics: dict[str, float] = {}
        self._resume(checkpoints.latest_version(self._job_dir) or 0)
        folder = self._job_dir / "monitor" / "tensorboard"
        self._board = open_board(config, folder, self._step + 1, self._lineage())

    def run(self) -> None:
        trainer, input_ = self._config.trainer, self._config.buffer.trainer_input.experience_buffer
        log.info(
            "trainer ready",
            version=self._published,
            waiting=self._store.unclaimed(),
            batch="each commit" if trainer.step_per_commit else self._batch_size,
            ends_without_data=f"after {input_.max_read_timeout:g} s" if input_.max_read_timeout else "never",
        )
        try:
            while trainer.total_steps is None or self._step < trainer.total_steps:
                batch = self._next_batch()
                if not batch:
                    break
                self._train_on(batch)
            if self._unpublished:
                self._publish()
        finally:
            self._board.close()
            self._store.close()
        log.info("trainer ended", step=self._step, version=self._published)

    def _resume(self, version: int) -> None:
        """Goes on from a published version, or from the model as it is given where there is none."""
        weights = checkpoints.weights_path(self._job_dir, version) if version else Path(self._config.model.model_path)
        log.info("loading the model", weights=str(weights))
        self._learner = Learner(self._config, weights, self._job_dir / "trl")
        if version:
            state = checkpoints.load_training_state(self._job_dir, version)
            if state is None:
                log.warning(
                    "the optimizer's moments start afresh: this version was saved without them", version=version
                )
            else:
                self._learner.check(state, checkpoints.training_state_path(self._job_dir, version))
            self._learner.go_on_from(version, state)
        # A version of a data set ends what was sampled before it, whenever that is committed.
        self._sampled_since = int(checkpoints.trained_on(self._job_dir, version).get("sampled_since", 0))
        released = self._store.release_after(version)
        if released:
            log.warning("taken by a step that was never published, trained again", experiences=released)
        if self._mixed is not None:
            self._mixed.go_on_from(self._job_dir, version)
        self._published = self._step = version
        self._unpublished = []

    def _follow_marker(self) -> None:
        """A version that somebody else published (a roll back, live) is what the Explorer serves now."""
        version = checkpoints.latest_version(self._job_dir) or 0
        if version != self._published:
            log.warning("going on from a version published by another", version=version, instead_of=self._step)
            self._store.release_after(self._published)
            self._resume(version)

    def _next_batch(self) -> list[Experience]:
        """Waits for a batch; empty when training is to end."""
        by_commit = self._config.trainer.step_per_commit
        size = 1 if by_commit else self._batch_size
        timeout = self._config.buffer.trainer_input.experience_buffer.max_read_timeout
        waiting, since = -1, time.monotonic()
        while not self._stop.is_set():
            self._follow_marker()
            if self._sampled_since and (late := self._store.discard_before(self._sampled_since)):
                log.warning(
                    "experiences of earlier versions discarded: they are off-policy now",
                    experiences=late,
                    version=self._sampled_since,
                )
            batch = self._store.claim(self._step + 1, size, whole_commits=by_commit, sampled_since=self._sampled_since)
            if batch:
                return batch
            now, before = time.monotonic(), waiting
            waiting = self._store.unclaimed()
            if waiting != before:
                since = now
            elif waiting and now - since >= self._config.trainer.partial_batch_after:
                size = waiting
            elif not waiting and timeout is not None and now - since >= timeout:
                log.info("no experiences for max_read_timeout", seconds=timeout)
                return []
            self._stop.wait(_POLL_SECONDS)
        return []

    def _train_on(self, batch: Sequence[Experience]) -> None:
        rows = () if self._mixed is None else self._mixed.beside(len(batch))
        metrics = self._gradient(batch, rows)
        if metrics is None:
            count = self._store.set_aside(self._step + 1)
            log.error("batch set aside", experiences=count, msg_ids=[experience.msg_id for experience in batch])
            return
        self._learner.update()
        self._step += 1
        self._unpublished += batch
        if self._mixed is not None:
            self._mixed.took(len(rows))
        self._metrics = asdict(metrics)
        publishes = self._step % self._config.synchronizer.sync_interval == 0 or self._is_full_step()
        origin = {"version": self._step, "parent": self._published} if publishes else {}
        self._board.log({**self._metrics, "experiences": len(batch), **origin}, self._step)
        if publishes:
            self._publish()
        log.info(
            "trained",
            step=self._step,
            experiences=len(batch),
            reward=round(metrics.reward_mean, 4),
            loss=round(metrics.loss, 4),
            kl=round(metrics.kl_to_sampling, 5),
            seconds=round(metrics.seconds, 1),
            version=self._published,
        )

    def _gradient(self, batch: Sequence[Experience], rows: Sequence[TaughtRow]) -> Metrics | None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._learner.accumulate(batch, rows)
            except Exception:  # whatever it is about a batch, it does not end training: the caller sets the batch aside
                log.warning("step failed", step=self._step + 1, attempt=attempt, of=_ATTEMPTS, exc_info=True)
        return None

    def _is_full_step(self) -> bool:
        interval = self._config.trainer.save_interval
        return interval > 0 and self._step % interval == 0

    def _publish(self) -> None:
        msg_ids = [experience.msg_id for experience in self._unpublished]
        lineage = self._lineage(self._step)
        checkpoints.publish(
            self._job_dir,
            self._step,
            self._learner.save_model,
            training_state=self._learner.state() if self._is_full_step() else None,
            trained_on={
                "parent": self._published,
                "sampled_since": self._sampled_since,
                "experiences": len(msg_ids),
                "msg_ids": msg_ids,
                "metrics": self._metrics,  # of the last step, which is the only one where each makes a version
                **({} if self._mixed is None else self._mixed.said()),
            },
        )
        if self._mixed is not None:
            self._mixed.published()
        self._published, self._unpublished = self._step, []
        self._board.published(lineage)
        checkpoints.prune(self._job_dir, self._config.trainer.max_checkpoints_to_keep)

    def _lineage(self, version: int | None = None) -> Lineage:
        name, digest = (None, None) if self._mixed is None else self._mixed.dataset
        return Lineage(self._published, version, name, digest)


def _mixed_rows(config: EngineConfig, held_out: float) -> MixedRows | None:
    mix = mix_of(config)
    if mix is None:
        return None
    from slipstream.embedded.mixed_rows import MixedRows  # imports TRL's other trainers, which takes time and memory

    return MixedRows(config, mix, held_out)
