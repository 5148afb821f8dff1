"""The three files as the doctor reads them: whatever a file holds, asking for a field gives a value of its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from sqlalchemy.engine import URL, make_url

from slipstream.doctor.fields import FIELDS, WrongType, converted
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings
from slipstream.settings.types import database_url
from slipstream.trinity.document import load_document

BUFFER = "buffer.trainer_input.experience_buffer"


@dataclass(frozen=True, slots=True)
class Document:
    """`explorer.yaml` or `trainer.yaml`, overlays merged in. A field that is missing or of a wrong type has Trinity's
    default; `checks.fields` reports the latter."""

    name: str
    tree: Mapping[str, Any]

    def at(self, *keys: str) -> str:
        """Return the place of the keys, as text for people."""
        return f"{self.name}: {', '.join(keys)}"

    def given(self, key: str) -> Any:
        """Return the raw value of a key in the file, or None."""
        value: Any = self.tree
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def text(self, key: str) -> str:
        return cast(str, self._value(key) or "")

    def whole(self, key: str) -> int:
        """A whole number; 0 stands for none."""
        return cast(int, self._value(key) or 0)

    def number(self, key: str) -> float:
        return float(self._value(key) or 0)

    def flag(self, key: str) -> bool:
        return bool(self._value(key))

    def _value(self, key: str) -> Any:
        field, value = FIELDS[key], self.given(key)
        if value is None:
            return field.default
        try:
            return converted(value, field.kind)
        except WrongType:
            return field.default

    @property
    def job_dir(self) -> Path:
        """`checkpoint_root_dir/project/group/name`: what Explorer and Trainer share."""
        root = Path(self.text("checkpoint_root_dir"))
        return root.joinpath(*(self.text(key).strip("/") for key in ("project", "group", "name")))

    @property
    def algorithm(self) -> str:
        return self.text("algorithm.algorithm_type")

    @property
    def gpus(self) -> int:
        """GPUs of this service's cluster; 0 where the file leaves it to Trinity to count them."""
        return self.whole("cluster.node_num") * self.whole("cluster.gpu_per_node")

    @property
    def buffer_url(self) -> URL | None:
        """Return the database in which experiences wait for the Trainer; None if that is no database or no URL."""
        if self.text(f"{BUFFER}.storage_type") != "sql":
            return None
        path = self.text(f"{BUFFER}.path")
        if not path:
            return make_url(f"sqlite:///{self.job_dir / 'buffer' / self.buffer_table}.db")
        return database_url(path)

    @property
    def buffer_table(self) -> str:
        return self.text(f"{BUFFER}.name") or FIELDS[f"{BUFFER}.name"].default


@dataclass(frozen=True, slots=True)
class Files:
    """The three files together.

    Attributes:
        elsewhere: the Explorer runs on another machine, and its files are there: the documents are empty.
    """

    sidecar_name: str
    sidecar: Settings
    explorer: Document
    trainer: Document
    elsewhere: bool = False

    def in_sidecar(self, *keys: str) -> str:
        return f"{self.sidecar_name}: {', '.join(keys)}"

    def in_both(self, *keys: str) -> str:
        return f"{self.explorer.name} and {self.trainer.name}: {', '.join(keys)}"


def read_files(
    sidecar: Path, explorer: Path, trainer: Path, overlays: Sequence[Path], environ: Mapping[str, str]
) -> Files:
    """Read the files; `explorer.yaml` and `trainer.yaml` may both be missing where the Explorer is on another machine.

    Raises:
        ConfigError: a file cannot be read, or `sidecar.yaml` would be refused by the sidecar.
    """
    settings = load_settings(sidecar, environ)
    if not explorer.exists() and not trainer.exists() and _is_remote(settings.explorer.base_url):
        return Files(str(sidecar), settings, Document(str(explorer), {}), Document(str(trainer), {}), elsewhere=True)
    return Files(
        sidecar_name=str(sidecar),
        sidecar=settings,
        explorer=Document(str(explorer), load_document(explorer, overlays)),
        trainer=Document(str(trainer), load_document(trainer, overlays)),
    )


def _is_remote(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost" and not host.endswith(".localhost")
