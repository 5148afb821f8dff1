"""Checks of the places for versions and experiences."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.files import BUFFER, Document, Files
from slipstream.doctor.findings import Finding, Problem
from slipstream.settings.types import database_url, shown_url

_DRIVERS = frozenset({
    "sqlite", "sqlite+aiosqlite", "postgresql", "postgresql+asyncpg", "postgresql+psycopg", "mysql", "mysql+aiomysql",
    "mysql+asyncmy",
})  # fmt: skip
"""Database drivers that Trinity can open: it adds an asynchronous driver to a name that has none."""

NO_CHECKPOINT_ROOT = Problem(
    "files.checkpoint_root_not_absolute",
    "error",
    why="Trinity puts a relative path (and none) into the directory that each service was started in: two directories.",
    fix="An absolute path on a filesystem that Explorer and Trainer share, mostly by CHECKPOINT_ROOT_DIR.",
)
RENAMED = Problem(
    "files.experiment_renamed",
    "error",
    why="With `continue_from_checkpoint: false` Trinity adds the time to the name of a job whose directory is not "
    "empty: Explorer and Trainer then work in two directories, and the state of before is not used.",
    fix="Leave `continue_from_checkpoint` at true; for a fresh start give both files a new `name`.",
)
NO_MODEL_PATH = Problem(
    "files.no_model_path",
    "error",
    why="Neither the Explorer nor the Trainer starts without a model.",
    fix="A Hugging Face directory that both services see at the same path, mostly by MODEL_PATH.",
)
NOT_SQL = Problem(
    "files.buffer_not_sql",
    "error",
    why="A queue lives in the memory of one Ray job and a file has no reader that waits; two services can only share "
    "a database. (Trinity's default is a queue.)",
    fix="`storage_type: sql` in both files.",
)
NO_URL = Problem(
    "files.buffer_path_wrong",
    "error",
    why="The buffer's `path` is a database URL. A relative SQLite file lies in the directory of whichever Ray process "
    "opens it, so Explorer and Trainer have two.",
    fix="`sqlite:////absolute/path.db` (four slashes), `postgresql://user:password@host:5432/database`, or leave "
    "`path` out: then it is a file in the job's directory.",
)
SQLITE_SHARED = Problem(
    "files.sqlite_on_several_hosts",
    "error",
    why="SQLite's locks do not hold across machines: the file is corrupted sooner or later, and experiences are lost.",
    fix="PostgreSQL: add `--overlay overlays/postgresql.yaml` and set BUFFER_URL.",
)


def checkpoint_root(files: Files) -> Iterator[Finding]:
    for document in _different(files, "checkpoint_root_dir"):
        path = document.text("checkpoint_root_dir")
        if not path.startswith("/"):
            yield NO_CHECKPOINT_ROOT.at(document.at("checkpoint_root_dir"), path or "nothing")


def renamed(files: Files) -> Iterator[Finding]:
    for document in (files.explorer, files.trainer):
        if not document.flag("continue_from_checkpoint"):
            yield RENAMED.at(document.at("continue_from_checkpoint"), "false")


def model_path(files: Files) -> Iterator[Finding]:
    for document in _different(files, "model.model_path"):
        if not document.text("model.model_path"):
            yield NO_MODEL_PATH.at(document.at("model.model_path"), "nothing")


def buffer_type(files: Files) -> Iterator[Finding]:
    for document in _different(files, f"{BUFFER}.storage_type"):
        kind = document.text(f"{BUFFER}.storage_type")
        if kind != "sql":
            yield NOT_SQL.at(document.at(f"{BUFFER}.storage_type"), kind)


def buffer_path(files: Files) -> Iterator[Finding]:
    for document in _different(files, f"{BUFFER}.path"):
        path, where = document.given(f"{BUFFER}.path"), document.at(f"{BUFFER}.path")
        if path is None or document.text(f"{BUFFER}.storage_type") != "sql":
            continue
        if fault := _fault(str(path)):
            yield NO_URL.at(where, fault)
        elif (url := document.buffer_url) and url.drivername.startswith("sqlite") and not _absolute(url.database):
            yield NO_URL.at(where, shown_url(str(path)))
    history = files.explorer.text("explorer.db_url")
    if history and history != files.explorer.text(f"{BUFFER}.path") and (fault := _fault(history)):
        yield NO_URL.at(files.explorer.at("explorer.db_url"), fault)


def _fault(text: str) -> str:
    """Return why Trinity cannot open the database of this name; empty if its name shows no reason."""
    url = database_url(text)
    if url is None:
        return "no database URL" if text else "an empty text, for which Trinity takes an SQLite file"
    if url.drivername not in _DRIVERS:
        return f"{shown_url(text)}: Trinity has no driver for {url.drivername}://"
    if url.drivername in ("postgresql", "postgresql+asyncpg") and "sslmode" in url.query:
        return f"{shown_url(text)}: asyncpg, Trinity's driver, does not know sslmode, but ssl"
    return ""


def _absolute(database: str | None) -> bool:
    return (database or "").startswith("/")


def sqlite_on_several_hosts(files: Files) -> Iterator[Finding]:
    for document in (files.explorer, files.trainer):
        url, hosts = document.buffer_url, document.whole("cluster.node_num")
        if url is not None and url.drivername.startswith("sqlite") and hosts > 1:
            found = f"SQLite with cluster.node_num: {hosts}"
            yield SQLITE_SHARED.at(document.at(f"{BUFFER}.path"), found)


def _different(files: Files, key: str) -> tuple[Document, ...]:
    """Both documents, or one for both where they say the same: then it is one mistake."""
    same = files.explorer.given(key) == files.trainer.given(key)
    return (files.trainer,) if same else (files.explorer, files.trainer)
