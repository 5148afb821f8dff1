"""The algorithm, the groups it compares, and the batches that they fill."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.algorithms import COMPARING, KNOWN, REFUSED, TEACHER, UNTRIED
from slipstream.doctor.files import Document, Files
from slipstream.doctor.findings import Finding, Problem

UNKNOWN = Problem(
    "files.algorithm_unknown",
    "error",
    why="Trinity 0.6.0 has no algorithm of this name, and does not start.",
    fix="grpo for tasks that can be run several times, ppo where they cannot; docs/trinity.md lists the others.",
)
NOT_SERVED = Problem(
    "files.algorithm_refused",
    "error",
    why="This algorithm learns from other data than served answers: Trinity refuses to start with it in serve mode.",
    fix="grpo, ppo or another algorithm of docs/trinity.md.",
)
NO_TEACHER = Problem(
    "files.algorithm_without_teacher",
    "error",
    why="This algorithm compares the policy with a teacher's logprobs. Serve mode takes it, but records none.",
    fix="grpo, ppo or another algorithm of docs/trinity.md.",
)
LOSES_QUEUE = Problem(
    "files.algorithm_loses_experiences",
    "error",
    why="With `rec` a group that has one run left (others failed) makes the whole commit fail, and Trinity then loses "
    "all that was in it.",
    fix="grpo or another group algorithm of docs/trinity.md.",
)
NOT_TRIED = Problem(
    "files.algorithm_untried",
    "warning",
    why="Its advantages were seen to work in serve mode; whether the Trainer mixes in its expert data there was not.",
    fix="grpo, unless you mean to try it.",
)
GROUP_OF_ONE = Problem(
    "files.group_of_one",
    "error",
    why="The algorithm compares the runs of a group with each other. A group of one has nothing to be compared with: "
    "its advantage is not what the algorithm means by it, and it teaches nothing or the wrong thing.",
    fix="`runs.repeat_time: 8` (2 at least), or an algorithm for single runs: `--overlay overlays/ppo.yaml`.",
)
SPLIT_GROUP = Problem(
    "files.batch_splits_groups",
    "warning",
    why="The Trainer takes exactly a batch at a time, the newest first. Groups that do not fill it leave the rest of "
    "one behind with each batch: it waits until nothing newer is there, and is stale by then.",
    fix="A `buffer.train_batch_size` that is a multiple of the group's size.",
)
LEFTOVERS = Problem(
    "files.commit_leaves_leftovers",
    "warning",
    why="The Trainer takes exactly a batch at a time, the newest first. Commits of another size leave something over "
    "each time, which waits until nothing newer is there.",
    fix="`commit.min_experiences` and `commit.max_pending` that divide the Trainer's `buffer.train_batch_size`, or are "
    "a multiple of it.",
)


def algorithm(files: Files) -> Iterator[Finding]:
    for document in (files.trainer,) if files.trainer.algorithm == files.explorer.algorithm else _both(files):
        name, where = document.algorithm, document.at("algorithm.algorithm_type")
        if name not in KNOWN:
            yield UNKNOWN.at(where, name)
        elif name in REFUSED:
            yield NOT_SERVED.at(where, name)
        elif name in TEACHER:
            yield NO_TEACHER.at(where, name)
        elif name == "rec":
            yield LOSES_QUEUE.at(where, name)
        elif name in UNTRIED:
            yield NOT_TRIED.at(where, name)


def _both(files: Files) -> tuple[Document, Document]:
    return files.explorer, files.trainer


def group_size(files: Files) -> Iterator[Finding]:
    for key, runs in _group_sizes(files):
        if runs == 1 and files.explorer.algorithm in COMPARING:
            yield GROUP_OF_ONE.at(files.in_sidecar(key), f"1 with {files.explorer.algorithm}")


def batch(files: Files) -> Iterator[Finding]:
    size = files.trainer.whole("buffer.train_batch_size")
    for key, runs in _group_sizes(files):
        if files.explorer.algorithm in COMPARING and size > 0 and size % runs:
            yield SPLIT_GROUP.at(files.trainer.at("buffer.train_batch_size"), f"{size} with {key} {runs}")


def _group_sizes(files: Files) -> Iterator[tuple[str, int]]:
    """Yield the group sizes with the keys that set them. The facade's size is that of the runs unless it is given."""
    yield "runs.repeat_time", files.sidecar.runs.repeat_time
    if files.sidecar.facade.group_size is not None:
        yield "facade.group_size", files.sidecar.facade.group_size


def commits(files: Files) -> Iterator[Finding]:
    size, commit = files.trainer.whole("buffer.train_batch_size"), files.sidecar.commit
    for key, value in (("min_experiences", commit.min_experiences), ("max_pending", commit.max_pending)):
        if size > 0 and value is not None and value % size and size % value:
            yield LEFTOVERS.at(files.in_sidecar(f"commit.{key}"), f"{value} with train_batch_size {size}")
