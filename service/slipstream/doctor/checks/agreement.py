"""Explorer and Trainer are two services that meet in a directory and a database: what both files must say alike."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.fields import FIELDS, WrongType, converted
from slipstream.doctor.files import BUFFER, Document, Files, shown_url
from slipstream.doctor.findings import Finding, Problem

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
        last = key.rpartition(".")[2]
        holder = document.given(key.rpartition(".")[0]) if "." in key else document.tree
        written = isinstance(holder, dict) and last in holder
        if written and not isinstance(value, dict) and not inside_wrong:
            wrong.add(key)
            yield WRONG_TYPE.at(document.at(key), f"{_shown(value)}, expected a mapping of fields")
    for key, field in FIELDS.items():
        value = document.given(key)
        if value is None:
            continue
        try:
            converted(value, field.kind)
        except WrongType as error:
            yield WRONG_TYPE.at(document.at(key), f"{_shown(value)}, expected {error}")


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value) if isinstance(value, str | int | float) else type(value).__name__


def modes(files: Files) -> Iterator[Finding]:
    for document, mode in ((files.explorer, "serve"), (files.trainer, "train")):
        if document.text("mode") != mode:
            yield WRONG_MODE.at(document.at("mode"), f"{document.text('mode')}, expected {mode}")


def job(files: Files) -> Iterator[Finding]:
    for key in ("project", "group", "name", "checkpoint_root_dir"):
        yield from _differs(JOB_DIFFERS, files, key)


def model(files: Files) -> Iterator[Finding]:
    lengths = ("max_model_len", "max_prompt_tokens", "max_response_tokens")
    for key in ("model_path", "temperature", *lengths):
        yield from _differs(MODEL_DIFFERS, files, f"model.{key}")


def buffer(files: Files) -> Iterator[Finding]:
    for key in ("name", "storage_type", "path"):
        yield from _differs(BUFFER_DIFFERS, files, f"{BUFFER}.{key}")


def algorithm(files: Files) -> Iterator[Finding]:
    if files.explorer.algorithm != files.trainer.algorithm:
        found = f"{files.explorer.algorithm} and {files.trainer.algorithm}"
        yield ALGORITHM_DIFFERS.at(files.in_both("algorithm.algorithm_type"), found)


def batch_sizes(files: Files) -> Iterator[Finding]:
    trainers, explorers = (each.whole("buffer.train_batch_size") for each in (files.trainer, files.explorer))
    if explorers and trainers and explorers != trainers:
        yield BATCH_SIZES_DIFFER.at(files.in_both("buffer.train_batch_size"), f"{explorers} and {trainers}")
    sidecars = files.sidecar.explorer.train_batch_size
    if sidecars and trainers and sidecars != trainers:
        found = f"{sidecars}; the Trainer's is {trainers}"
        yield BATCH_SIZES_DIFFER.at(files.in_sidecar("explorer.train_batch_size"), found)


def _differs(problem: Problem, files: Files, key: str) -> Iterator[Finding]:
    kind = FIELDS[key].kind
    one, other = ((each.text if kind is str else each.number)(key) for each in (files.explorer, files.trainer))
    if one != other:
        yield problem.at(files.in_both(key), f"{_plain(one)} and {_plain(other)}")


def _plain(value: str | float) -> str:
    if isinstance(value, str):
        return repr(shown_url(value) if "://" in value else value) if value else "nothing"
    return f"{value:g}" if value else "nothing"
