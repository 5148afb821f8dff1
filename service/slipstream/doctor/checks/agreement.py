"""Explorer and Trainer are two services that meet in a directory and a database: what both files must say alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from slipstream.doctor.fields import FIELDS, WrongType, converted
from slipstream.doctor.files import BUFFER, Document, Files
from slipstream.doctor.findings import Finding, Problem
from slipstream.settings.types import shown_url

WRONG_TYPE = Problem(
    "files.wrong_type",
    "error",
    why="Trinity's loader refuses the file.",
    fix="Write a value of the expected type.",
)
WRONG_MODE = Problem(
    "files.wrong_mode",
    "error",
    why="Trinity does what `mode` says: only `serve` answers requests, only `train` takes what they gave.",
    fix="`mode: serve` in the Explorer's file, `mode: train` in the Trainer's.",
)
JOB_DIFFERS = Problem(
    "files.job_differs",
    "error",
    why="Together they name the job's directory. The Explorer looks for new versions in another one than the Trainer "
    "writes them to, so it serves the first version for ever.",
    fix="Give both files the same value.",
)
MODEL_DIFFERS = Problem(
    "files.model_differs",
    "error",
    why="The Trainer computes the probabilities of answers that another model, or the same under other limits or "
    "temperature, gave: what it learns from them is wrong, or it stops at the first batch.",
    fix="Give both files the same value.",
)
BUFFER_DIFFERS = Problem(
    "files.buffer_differs",
    "error",
    why="The Explorer writes experiences where the Trainer does not look, so nothing is ever trained.",
    fix="Give both files the same `name`, `storage_type` and `path`.",
)
ALGORITHM_DIFFERS = Problem(
    "files.algorithm_differs",
    "error",
    why="The Explorer computes the advantages of group algorithms at commit, and the Trainer trains on them: with two "
    "algorithms the advantages are missing or mean something else.",
    fix="Give both files the same `algorithm_type`.",
)
SIDECARS_ALGORITHM_DIFFERS = Problem(
    "files.algorithm_of_the_sidecar_differs",
    "warning",
    why="The sidecar warns of groups that teach nothing by the algorithm that its file names; with another one it "
    "warns in vain, or not at all.",
    fix="Write the Explorer's `algorithm.algorithm_type` into `explorer.algorithm_type` of the sidecar's file.",
)
BATCH_SIZES_DIFFER = Problem(
    "files.batch_sizes_differ",
    "warning",
    why="The Trainer's number decides when it trains. Another one elsewhere misleads whoever reads it, and /status.",
    fix="Write the Trainer's `buffer.train_batch_size` into the Explorer's file and `explorer.train_batch_size` of "
    "the sidecar's.",
)


def types(files: Files) -> Iterator[Finding]:
    for document in (files.explorer, files.trainer):
        yield from _types(document)


def _types(document: Document) -> Iterator[Finding]:
    parents = sorted({key.rpartition(".")[0] for key in FIELDS if "." in key} | {"explorer", "buffer.trainer_input"})
    wrong: set[str] = set()
    for key in parents:
        value = document.given(key)
        inside_wrong = any(key.startswith(f"{other}.") for other in wrong)
        if _written(document, key) and not isinstance(value, dict) and not inside_wrong:
            wrong.add(key)
            yield WRONG_TYPE.at(document.at(key), f"{_shown(value)}, expected a mapping of fields")
    for key, field in FIELDS.items():
        value = document.given(key)
        if value is None and (field.default is None or not _written(document, key)):
            continue
        try:
            converted(value, field.kind)
        except WrongType as error:
            yield WRONG_TYPE.at(document.at(key), f"{_shown(value)}, expected {error}")


def _written(document: Document, key: str) -> bool:
    """Return whether the file has the key, even without a value."""
    parent, _, last = key.rpartition(".")
    holder = document.given(parent) if parent else document.tree
    return isinstance(holder, dict) and last in holder


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value) if isinstance(value, str | int | float) else type(value).__name__


def modes(files: Files) -> Iterator[Finding]:
    for document, mode in ((files.explorer, "serve"), (files.trainer, "train")):
        if document.text("mode") != mode:
            yield WRONG_MODE.at(document.at("mode"), f"{document.text('mode')}, expected {mode}")


def job(files: Files) -> Iterator[Finding]:
    for key in ("project", "group", "name"):
        yield from _differs(JOB_DIFFERS, files, key)
    yield from _differs(JOB_DIFFERS, files, "checkpoint_root_dir", meant=_directory)


def model(files: Files) -> Iterator[Finding]:
    lengths = ("max_model_len", "max_prompt_tokens", "max_response_tokens")
    yield from _differs(MODEL_DIFFERS, files, "model.model_path", meant=_directory)
    for key in ("temperature", *lengths):
        yield from _differs(MODEL_DIFFERS, files, f"model.{key}")


def buffer(files: Files) -> Iterator[Finding]:
    for key in ("name", "storage_type"):
        yield from _differs(BUFFER_DIFFERS, files, f"{BUFFER}.{key}")
    yield from _differs(BUFFER_DIFFERS, files, f"{BUFFER}.path", shown=shown_url)


def algorithm(files: Files) -> Iterator[Finding]:
    if files.explorer.algorithm != files.trainer.algorithm:
        found = f"{files.explorer.algorithm} and {files.trainer.algorithm}"
        yield ALGORITHM_DIFFERS.at(files.in_both("algorithm.algorithm_type"), found)
    sidecars = files.sidecar.explorer.algorithm_type
    if sidecars and sidecars != files.explorer.algorithm:
        found = f"{sidecars}; the Explorer's is {files.explorer.algorithm}"
        yield SIDECARS_ALGORITHM_DIFFERS.at(files.in_sidecar("explorer.algorithm_type"), found)


def batch_sizes(files: Files) -> Iterator[Finding]:
    trainers, explorers = (each.whole("buffer.train_batch_size") for each in (files.trainer, files.explorer))
    if explorers and trainers and explorers != trainers:
        yield BATCH_SIZES_DIFFER.at(files.in_both("buffer.train_batch_size"), f"{explorers} and {trainers}")
    sidecars = files.sidecar.explorer.train_batch_size
    if sidecars and trainers and sidecars != trainers:
        found = f"{sidecars}; the Trainer's is {trainers}"
        yield BATCH_SIZES_DIFFER.at(files.in_sidecar("explorer.train_batch_size"), found)


def _differs(
    problem: Problem,
    files: Files,
    key: str,
    meant: Callable[[str], str] = str,
    shown: Callable[[str], str] = repr,
) -> Iterator[Finding]:
    """
    Args:
        meant: makes texts that mean the same the same.
        shown: a text for people.
    """
    if FIELDS[key].kind is str:
        texts = [each.text(key) for each in (files.explorer, files.trainer)]
        differ, told = len(set(map(meant, texts))) > 1, [shown(text) if text else "nothing" for text in texts]
    else:
        numbers = [each.number(key) for each in (files.explorer, files.trainer)]
        differ, told = numbers[0] != numbers[1], [f"{number:g}" if number else "nothing" for number in numbers]
    if differ:
        yield problem.at(files.in_both(key), " and ".join(told))


def _directory(path: str) -> str:
    """Without what makes no difference: a slash at the end."""
    return os.path.normpath(path) if path else path
