"""Files of a data set, written and read line by line: JSONL, and Parquet in row groups.

Memory does not grow with the rows: a writer holds at most `ROW_GROUP_BYTES` (and the row that goes beyond it), a reader
one row group. In Parquet, messages and tools are JSON text with the type that Hugging Face's `datasets` calls `Json`:
as structs, each would get the keys of all others (a call arguments that nobody gave).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal, Protocol, TypeAlias

from slipstream.datasets.formats.columns import Column
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.jsontext import from_json, to_json

Files: TypeAlias = Literal["jsonl", "parquet"]
Line: TypeAlias = Mapping[str, Any]

ROW_GROUP_BYTES = 16 << 20
"""Size of a row group before it is packed: large enough to be packed well, small beside what a process takes anyway."""


class FileError(SlipstreamError):
    """A file cannot be read or written; names the file, and the line if there is one."""


class LineWriter(Protocol):
    """A file that is written line by line, and whole when it is closed."""

    def write(self, line: Line) -> int:
        """Write a line, and return the characters that it takes, roughly."""

    def close(self) -> None:
        """End the file. Nothing happens if that was done."""


def write_lines(path: Path, columns: Mapping[str, Column] | None) -> LineWriter:
    """Begin a file; one of the name is written over. Its ending, `.jsonl` or `.parquet`, says how it is written.

    Args:
        columns: of the lines; only Parquet needs them.

    Raises:
        ConfigError: it is Parquet, and pyarrow is not installed.
    """
    if path.suffix == ".parquet":
        assert columns is not None
        return _ParquetWriter(path, columns)
    return _JsonlWriter(path)


def read_lines(file: IO[bytes], path: Path, columns: Mapping[str, Column] | None) -> Iterator[dict[str, Any]]:
    """Read an open file line by line.

    Args:
        path: its name, whose ending says how it is read.
        columns: of the lines; only Parquet needs them.

    Raises:
        ConfigError: it is Parquet, and pyarrow is not installed.
        FileError: a line is no JSON object, or the file is no Parquet; names the file and the line.
    """
    if path.suffix == ".parquet":
        assert columns is not None
        return _read_parquet(file, path, columns)
    return _read_jsonl(file, path)


class _JsonlWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, line: Line) -> int:
        text = to_json(line)
        self._file.write(text)
        self._file.write(b"\n")
        return len(text)

    def close(self) -> None:
        self._file.close()


class _ParquetWriter:
    def __init__(self, path: Path, columns: Mapping[str, Column]) -> None:
        self._arrow, parquet = _pyarrow()
        self._columns = columns
        self._schema = _schema(self._arrow, columns)
        self._file = path.open("wb")
        self._writer = parquet.ParquetWriter(self._file, self._schema, compression="zstd")
        self._waiting: dict[str, list[Any]] = {name: [] for name in columns}
        self._bytes = 0

    def write(self, line: Line) -> int:
        values = {name: _packed(line.get(name), column) for name, column in self._columns.items()}
        for name, value in values.items():
            self._waiting[name].append(value)
        size = sum(map(_size, values.values()))
        self._bytes += size
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_group()
        return size

    def close(self) -> None:
        if not self._file.closed:
            with self._file, self._writer:
                self._write_group()

    def _write_group(self) -> None:
        arrays = [self._arrow.array(self._waiting[field.name], type=field.type) for field in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._waiting = {name: [] for name in self._columns}
        self._bytes = 0


def _read_jsonl(file: IO[bytes], path: Path) -> Iterator[dict[str, Any]]:
    for number, text in enumerate(file, start=1):
        try:
            line, _ = from_json(text)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{path}: line {number}: expected a JSON object, found {error}") from error
        if not isinstance(line, dict):
            raise FileError(f"{path}: line {number}: expected a JSON object, found {type(line).__name__}")
        yield line


def _read_parquet(file: IO[bytes], path: Path, columns: Mapping[str, Column]) -> Iterator[dict[str, Any]]:
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=64, columns=list(columns)):
                for row in batch.to_pylist():
                    yield {name: _unpacked(row[name], column) for name, column in columns.items()}
    except (arrow.ArrowException, KeyError, OSError, ValueError) as error:
        raise FileError(f"{path}: expected a Parquet file, found {error}") from error


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"files: parquet needs the package {error.name}, which is not installed; the extra [data] brings it"
        ) from error
    return pyarrow, pyarrow.parquet


def _schema(arrow: ModuleType, columns: Mapping[str, Column]) -> Any:
    """The schema of a file, with the types that `datasets` gives its columns."""
    text = arrow.string()
    types = {
        Column.TEXT: text,
        Column.FLAG: arrow.bool_(),
        Column.JSON: text,
        Column.JSONS: arrow.list_(text),
        Column.TEXTS: arrow.list_(arrow.struct([("role", text), ("content", text)])),
        Column.TURN: arrow.struct([("from", text), ("value", text)]),
        Column.TURNS: arrow.list_(arrow.struct([("from", text), ("value", text)])),
    }
    said = json.dumps({"info": {"features": {name: column.feature for name, column in columns.items()}}})
    return arrow.schema([(name, types[column]) for name, column in columns.items()], {"huggingface": said})


def _packed(value: Any, column: Column) -> Any:
    if value is not None and column is Column.JSON:
        return to_json(value).decode()
    if value is not None and column is Column.JSONS:
        return [to_json(item).decode() for item in value]
    return value


def _unpacked(value: Any, column: Column) -> Any:
    if value is not None and column is Column.JSON:
        return from_json(value)[0]
    if value is not None and column is Column.JSONS:
        return [from_json(item)[0] for item in value]
    return value


def _size(value: Any) -> int:
    """Bytes of a packed value, roughly: characters of its texts."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list) else 1
