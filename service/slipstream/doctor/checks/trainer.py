"""Checks of `trainer.yaml`: when training ends, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.algorithms import WITH_REFERENCE
from slipstream.doctor.files import BUFFER, Files
from slipstream.doctor.findings import Finding, Problem

_NIGHT = 12 * 3600.0
"""Seconds that traffic may well stay away."""

ENDS_AT_NIGHT = Problem(
    "files.training_ends_on_a_quiet_night",
    "warning",
    why="After so long without a whole batch the Trainer saves and ends, with exit code 0. Whatever restarts only "
    "what failed leaves it ended, and nobody is told. (Trinity's default is 1800 s.)",
    fix="`max_read_timeout: 2592000` (30 days), and a restart policy that restarts it after exit code 0 too.",
)
TRAINING_ENDS = Problem(
    "files.training_ends",
    "warning",
    why="After `total_steps` the Trainer ends for good; traffic goes on, and its experiences pile up.",
    fix="Leave `trainer.total_steps` out.",
)
NOT_RESUMABLE = Problem(
    "files.no_full_checkpoint",
    "warning",
    why="With `save_interval: 0` no checkpoint has the optimizer's state before training ends: after a restart the "
    "Trainer begins anew from the first model, while the Explorer keeps serving the newest.",
    fix="`save_interval: 16`, or as many steps as you can afford to repeat.",
)
DISK_FILLS = Problem(
    "files.checkpoints_fill_the_disk",
    "warning",
    why="`max_checkpoints_to_keep: 0` keeps every full checkpoint (about 14 bytes a parameter) until the disk is "
    "full, and then training stops.",
    fix="`max_checkpoints_to_keep: 5`, or what your disk holds.",
)
NO_MODEL_DIRECTORY = Problem(
    "files.no_model_directory",
    "warning",
    why="Full checkpoints are written as FSDP shards alone (`last`: until training ends, which a service does not): "
    "no version can be evaluated or promoted as an ordinary model directory.",
    fix="`save_hf_checkpoint: always`.",
)
SECOND_COPY = Problem(
    "files.experiences_kept_twice",
    "warning",
    why="The Explorer writes each experience once more to an SQLite file that nothing reads and nothing prunes. (It "
    "is Trinity's default.)",
    fix="`save_input: false`.",
)
NO_BATCH_SIZE = Problem(
    "files.no_train_batch_size",
    "error",
    why="Trinity's Trainer refuses to start without it.",
    fix="`buffer.train_batch_size`: a multiple of `runs.repeat_time` and of the Trainer's GPUs.",
)
UNEVEN_BATCH = Problem(
    "files.batch_not_divisible_by_gpus",
    "error",
    why="A batch is spread evenly over the GPUs (by sequence parallelism); Trinity refuses to start where it cannot "
    "be.",
    fix="A `train_batch_size` that is a multiple of node_num * gpu_per_node / ulysses_sequence_parallel_size.",
)
LONG_SEQUENCE = Problem(
    "files.sequence_fits_no_gpu",
    "error",
    why="The Trainer computes whole sequences, as many at once as fit into `max_token_len_per_gpu`. At one that fits "
    "into none the step fails, and its batch stays consumed.",
    fix="`trainer.max_token_len_per_gpu` (by sequence parallelism) of at least `model.max_model_len`, or leave it out.",
)
NO_KL_LOSS = Problem(
    "files.kl_loss_missing",
    "error",
    why="The algorithm asks for a reference model, which the Trainer builds only where there is a KL loss: with "
    "`none` the first step fails, and its batch stays consumed. (Seen with grpo in 0.6.0.)",
    fix="Leave `kl_loss_fn` out or `k2`; to turn its effect off, `kl_loss_fn_args: {kl_coef: 0}`.",
)
SYNC_METHOD = Problem(
    "files.sync_method_not_checkpoint",
    "warning",
    why="Two services can hand over weights only through the checkpoint directory. Trinity 0.6.0 replaces `nccl` (its "
    "default) by `checkpoint` in these modes, and nothing else.",
    fix="`synchronizer.sync_method: checkpoint` in both files.",
)


def reading(files: Files) -> Iterator[Finding]:
    seconds = files.trainer.number(f"{BUFFER}.max_read_timeout")
    if seconds < _NIGHT:
        yield ENDS_AT_NIGHT.at(files.trainer.at(f"{BUFFER}.max_read_timeout"), f"{seconds:g} s")


def ending(files: Files) -> Iterator[Finding]:
    steps = files.trainer.whole("trainer.total_steps")
    if steps:
        yield TRAINING_ENDS.at(files.trainer.at("trainer.total_steps"), str(steps))


def checkpoints(files: Files) -> Iterator[Finding]:
    trainer = files.trainer
    if trainer.whole("trainer.save_interval") <= 0:
        yield NOT_RESUMABLE.at(trainer.at("trainer.save_interval"), "0")
    elif trainer.whole("trainer.max_checkpoints_to_keep") <= 0:
        yield DISK_FILLS.at(trainer.at("trainer.max_checkpoints_to_keep"), "0")
    if (kept := trainer.text("trainer.save_hf_checkpoint")) != "always":
        yield NO_MODEL_DIRECTORY.at(trainer.at("trainer.save_hf_checkpoint"), kept)


def second_copy(files: Files) -> Iterator[Finding]:
    key = "data_processor.experience_pipeline.save_input"
    if files.explorer.flag(key):
        yield SECOND_COPY.at(files.explorer.at(key), "true")


def batch(files: Files) -> Iterator[Finding]:
    trainer, where = files.trainer, files.trainer.at("buffer.train_batch_size")
    size, spread = trainer.whole("buffer.train_batch_size"), trainer.whole("trainer.ulysses_sequence_parallel_size")
    if size <= 0:
        yield NO_BATCH_SIZE.at(where, "nothing")
        return
    spread = max(1, spread)
    if trainer.gpus % spread:
        where = trainer.at("trainer.ulysses_sequence_parallel_size")
        yield UNEVEN_BATCH.at(where, f"{spread} with {trainer.gpus} GPUs")
    elif trainer.gpus and size % (trainer.gpus // spread):
        yield UNEVEN_BATCH.at(where, f"{size} over {trainer.gpus} GPUs")


def lengths(files: Files) -> Iterator[Finding]:
    trainer = files.trainer
    longest, one = trainer.whole("model.max_model_len"), trainer.whole("trainer.max_token_len_per_gpu")
    room = one * max(1, trainer.whole("trainer.ulysses_sequence_parallel_size"))
    if trainer.flag("trainer.use_dynamic_bsz") and 0 < room < longest:
        where = trainer.at("trainer.max_token_len_per_gpu")
        yield LONG_SEQUENCE.at(where, f"room for {room} tokens; max_model_len is {longest}")


def kl_loss(files: Files) -> Iterator[Finding]:
    trainer = files.trainer
    if trainer.text("algorithm.kl_loss_fn").lower() == "none" and trainer.algorithm in WITH_REFERENCE:
        yield NO_KL_LOSS.at(trainer.at("algorithm.kl_loss_fn"), f"none with {trainer.algorithm}")


def synchronizing(files: Files) -> Iterator[Finding]:
    for document in (files.explorer, files.trainer):
        method = document.text("synchronizer.sync_method").lower()
        if method not in ("checkpoint", "offline"):  # two names of the same
            yield SYNC_METHOD.at(document.at("synchronizer.sync_method"), method)
