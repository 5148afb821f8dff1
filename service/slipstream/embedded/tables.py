"""The tables of the embedded engine's experiences, in one database that Explorer and Trainer share.

One buffer is three tables: `<name>_answers` holds what the Explorer recorded, `<name>_commits` one row a commit, and
`<name>` what was committed and is to be trained on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    inspect,
    make_url,
)

from slipstream.errors import ConfigError

_BUFFER = "buffer.trainer_input.experience_buffer"
_BUSY_SECONDS = 30  # Explorer and Trainer write to one SQLite file: one waits this long for the other
READS_ONLY = "reads_only"  # an option of connections that write nothing, and do not wait for SQLite's write lock
_PACKAGES = {  # that bring drivers of another name
    "psycopg2": "psycopg2-binary",
    "psycopg": "'psycopg[binary]'",
    "MySQLdb": "mysqlclient",
}


@dataclass(frozen=True)
class Tables:
    """An open database, and the three tables of one buffer in it."""

    engine: Engine
    answers: Table
    commits: Table
    buffer: Table


def open_tables(url: str, buffer_name: str) -> Tables:
    """Opens the database and makes the tables and indexes that are missing.

    Raises:
        ConfigError: the database has no driver here, or holds a table of this name with other columns.
    """
    metadata = MetaData()
    tables = Tables(
        engine=_engine(url),
        answers=_answers_table(metadata, buffer_name),
        commits=_commits_table(metadata, buffer_name),
        buffer=_buffer_table(metadata, buffer_name),
    )
    with tables.engine.begin() as connection:
        metadata.create_all(connection)
        for table in metadata.sorted_tables:
            _check_columns(connection, table)
            for index in table.indexes:  # a table of before is not given those that came later
                index.create(connection, checkfirst=True)
    return tables


def _engine(url: str) -> Engine:
    try:
        engine = create_engine(url)
    except ModuleNotFoundError as error:
        package = _PACKAGES.get(error.name or "", error.name)
        raise ConfigError(
            f"{_BUFFER}.path: {make_url(url).drivername}:// needs the Python package {error.name}, which is not "
            f"installed: pip install {package}"
        ) from error
    if engine.dialect.is_async:
        raise ConfigError(
            f"{_BUFFER}.path: expected a driver that is not asynchronous, such as postgresql+psycopg:// or sqlite://, "
            f"found {engine.url.drivername}://"
        )
    if engine.dialect.name != "sqlite":
        return engine
    database = engine.url.database
    if database and database != ":memory:":
        file = Path(database)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Conversations: SQLite would let everybody read a new file. Those beside it get the same mode.
        os.close(os.open(file, os.O_CREAT, 0o600))

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver would begin too late: at the first write
        connection.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000}")
        connection.execute("PRAGMA journal_mode=WAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(READS_ONLY):
            connection.exec_driver_sql("BEGIN")
        else:  # takes the write lock before anything is read, so that read-then-write is one step
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _answers_table(metadata: MetaData, buffer_name: str) -> Table:
    return Table(
        f"{buffer_name}_answers",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("msg_id", String(64), nullable=False, index=True),
        Column("prompt_ids", LargeBinary, nullable=False),
        Column("response_ids", LargeBinary, nullable=False),
        Column("logprobs", LargeBinary, nullable=False),
        Column("model_version", Integer, nullable=False),
        Column("created_at", Float, nullable=False),
        Column("task_id", String(64)),
        Column("run_id", Integer),
        Column("reward", Float),
        Column("step", Integer),  # its place among the run's answers, from 0
        Column("commit_id", Integer),
        Index(f"{buffer_name}_answers_state", "reward", "commit_id"),
    )


def _commits_table(metadata: MetaData, buffer_name: str) -> Table:
    return Table(
        f"{buffer_name}_commits",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("created_at", Float, nullable=False),
        Column("experiences", Integer, nullable=False),
    )


def _buffer_table(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("id", Integer, primary_key=True),
        Column("msg_id", String(64), nullable=False),
        Column("task_id", String(64)),
        Column("run_id", Integer, nullable=False),
        Column("reward", Float, nullable=False),
        Column("advantage", Float),
        Column("prompt_ids", LargeBinary, nullable=False),
        Column("response_ids", LargeBinary, nullable=False),
        Column("logprobs", LargeBinary, nullable=False),
        Column("model_version", Integer, nullable=False),
        Column("created_at", Float, nullable=False),
        Column("commit_id", Integer, nullable=False),
        Column("train_step", Integer, index=True),
        Index(f"ix_{name}_group", "commit_id", "task_id", "model_version"),
    )


def _check_columns(connection: Connection, table: Table) -> None:
    found = {column["name"] for column in inspect(connection).get_columns(table.name)}
    if found == set(table.c.keys()) - {"step"} and "step" in table.c:  # of a version that knew no runs of several steps
        connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN step INTEGER")
        found.add("step")
    if found != set(table.c.keys()):
        raise ConfigError(
            f"{_BUFFER}: expected a database of the embedded engine, found a table "
            f"{table.name!r} with other columns (of another engine?); give another name or path"
        )
