"""Facts about this machine that the checks need: directories, space, the model, installed packages."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from sqlalchemy.engine import make_url

from slipstream.doctor.files import Files
from slipstream.doctor.keys import KeysFile, locked_out, look_at_keys_file
from slipstream.doctor.markers import Marker, read_marker
from slipstream.proxy import open_files
from slipstream.store.claim import sqlite_file
from slipstream.trinity.checkpoint_files import RESUME_MARKER, VERSION_MARKER

PACKAGES = ("trinity-rft", "verl", "vllm", "trl", "sqlalchemy", "greenlet", "aiosqlite", "asyncpg")


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """The model that both services start from.

    Attributes:
        missing: files without which it cannot be loaded or cannot chat.
        weights: bytes of its weights.
    """

    path: Path
    exists: bool
    missing: tuple[str, ...]
    has_chat_template: bool
    weights: int


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that somebody has to write to.

    Attributes:
        error: why it cannot be written; None where it can.
        free: bytes.
        filesystem: its type, such as ext4 or nfs4; empty where that is not told.
        clock: seconds by which a file written now is dated ahead of this machine's clock.
    """

    path: Path
    exists: bool
    error: str | None = None
    free: int = 0
    filesystem: str = ""
    clock: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """
    Attributes:
        checkpoints: `checkpoint_root_dir`.
        store: the directory of the sidecar's store; None where that is a database server.
        sqlite: directories of the SQLite files that Explorer and Trainer share, by the key that names them.
        model: None where `model_path` is a name on a model hub.
        job: whether the job's directory, below it, is there.
        checkpointed: bytes that the job's versions take already.
        keys: `access.keys_file`; None where none is named.
        locked_out: why the sidecar's store cannot be opened with its keys; None where it can.
        open_files: how many a process of this user may have; None: any number.
        packages: versions of what is installed here, by name.
    """

    python: tuple[int, int]
    packages: Mapping[str, str]
    checkpoints: Directory
    store: Directory | None
    sqlite: Mapping[str, Directory]
    model: ModelDirectory | None
    version: Marker | None
    resume: Marker | None
    job: bool
    checkpointed: int
    keys: KeysFile | None
    locked_out: str | None
    open_files: int | None


def look_at_machine(files: Files) -> Machine:
    """Collect the facts of this machine. Writes one small file into each directory, and removes it."""
    job_dir = files.trainer.job_dir
    return Machine(
        python=sys.version_info[:2],
        packages=dict(_installed()),
        checkpoints=_directory(Path(files.trainer.text("checkpoint_root_dir"))),
        store=_store(files.sidecar.store.url),
        sqlite=dict(_shared_sqlite(files)),
        model=_model(files.explorer.text("model.model_path")),
        version=read_marker(job_dir, VERSION_MARKER),
        resume=read_marker(job_dir, RESUME_MARKER),
        job=os.path.isdir(job_dir),
        checkpointed=sum(map(_size, _of_versions(job_dir))),
        keys=look_at_keys_file(files.sidecar.access),
        locked_out=locked_out(files.sidecar.store),
        open_files=open_files.allowed(),
    )


def _installed() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _directory(path: Path) -> Directory:
    try:
        if not path.is_dir():
            return Directory(path, exists=False)
    except OSError as failed:  # such as one of another user
        return Directory(path, False, failed.strerror or str(failed))
    error, clock = None, 0.0
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".slipstream-doctor-") as file:
            file.write(b"doctor")
            file.flush()
            clock = os.stat(file.name).st_mtime - time.time()
    except OSError as failed:
        error = failed.strerror or str(failed)
    return Directory(path, True, error, shutil.disk_usage(path).free, _filesystem(path), clock)


def _filesystem(path: Path) -> str:
    """The type of the filesystem that a path lies on, as Linux tells it."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    mounts = {Path(line.split()[1].replace("\\040", " ")): line.split()[2] for line in lines}
    real = path.resolve()
    return next((mounts[place] for place in (real, *real.parents) if place in mounts), "")


def _of_versions(job_dir: Path) -> Iterator[Path]:
    """The files of all versions; `os.walk` does not mind that the Trainer deletes some meanwhile."""
    for place, folders, names in os.walk(job_dir):
        if place == str(job_dir):
            folders[:] = [name for name in folders if name.startswith("global_step_")]
        else:
            yield from (Path(place, name) for name in names)


def _store(url: str) -> Directory | None:
    parsed = make_url(url)
    file = sqlite_file(parsed) if parsed.get_backend_name() == "sqlite" else None
    return None if file is None else _directory(file.parent)


def _shared_sqlite(files: Files) -> Iterator[tuple[str, Directory]]:
    url = files.trainer.buffer_url
    if url is not None and url.drivername.startswith("sqlite") and url.database:
        yield files.trainer.at("buffer.trainer_input.experience_buffer.path"), _nearest(Path(url.database))
    history = files.explorer.text("explorer.db_url") or f"sqlite:///{files.explorer.job_dir / 'buffer' / 'history.db'}"
    if history.startswith("sqlite"):
        yield files.explorer.at("explorer.db_url"), _nearest(Path("/" + history.partition(":///")[2].lstrip("/")))


def _nearest(path: Path) -> Directory:
    """The directory of a file that need not be there yet: where it will be made."""
    place = next((parent for parent in path.parents if os.path.isdir(parent)), Path("/"))
    return Directory(place, True, filesystem=_filesystem(place))


def _model(name: str) -> ModelDirectory | None:
    path = Path(name)
    if not name or (not path.is_absolute() and not os.path.exists(path)):
        return None
    if not os.path.isdir(path):
        return ModelDirectory(path, False, (), False, 0)
    tokenizers = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
    missing = [] if os.path.exists(path / "config.json") else ["config.json"]
    if not any(os.path.exists(path / each) for each in tokenizers):
        missing.append("tokenizer.json")
    weights = sum(_size(each) for pattern in ("*.safetensors", "*.bin") for each in path.glob(pattern))
    if not weights:
        missing.append("*.safetensors")
    return ModelDirectory(path, True, tuple(missing), _has_chat_template(path), weights)


def _has_chat_template(path: Path) -> bool:
    if any(path.glob("chat_template.*")) or os.path.isdir(path / "additional_chat_templates"):
        return True
    try:
        told = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and bool(told.get("chat_template"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # deleted meanwhile
        return 0
