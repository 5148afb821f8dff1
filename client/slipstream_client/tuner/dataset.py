"""The tasks to train and evaluate on: AgentScope's `DatasetConfig`, over Hugging Face `datasets`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from slipstream_client.extras import hint

_BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
"""Reader of a single file, by the end of its name."""


class DatasetConfig(BaseModel):
    """Place of the tasks, and how often they are gone through.

    `path` is what `datasets.load_dataset` takes: a directory with `train.jsonl` and the like, or a name on the Hugging
    Face Hub; and a single file beside.
    """

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, description="A directory, a file, or a dataset's name.")
    name: str | None = Field(default=None, description="The configuration of a dataset that has several.")
    split: str | None = Field(default="train", description="Which part, such as train, test or train[:100].")
    total_epochs: int = Field(default=1, ge=1, description="How often the whole is gone through.")
    total_steps: int | None = Field(default=None, ge=1, description="How many steps; counts instead of total_epochs.")

    def preview(self, n: int = 5) -> list[dict[str, Any]]:
        """Prints the first `n` tasks as JSON and returns them, without reading the rest.

        Raises:
            ValueError: `path`, `name` or `split` leads nowhere, or cannot be read; the field is named.
        """
        streaming = "[" not in (self.split or "")  # a part of a split is cut out of the whole
        tasks = self._loaded(streaming=streaming)
        try:
            samples = list(islice(tasks, n))
        except ValueError as error:
            raise ValueError(f"dataset path: {self.path!r} cannot be read: {error}") from error
        print(json.dumps(samples, indent=2, ensure_ascii=False, default=str))
        return samples

    def load(self) -> Sequence[dict[str, Any]]:
        """All tasks, a mapping each, in their order.

        Raises:
            ValueError: `path`, `name` or `split` leads nowhere, or there is nothing; the field is named.
        """
        loaded: Sequence[dict[str, Any]] = self._loaded(streaming=False)
        if not len(loaded):
            raise ValueError(f"dataset split: {self.split!r} of {self.path!r} has no tasks")
        return loaded

    def _loaded(self, *, streaming: bool) -> Any:
        try:
            from datasets import Dataset, IterableDataset, config, load_dataset  # type: ignore[import-untyped]
            from datasets.exceptions import DatasetsError  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(hint("DatasetConfig", "datasets", "tuner")) from error
        where, path = {"path": self.path, "name": self.name}, Path(self.path).expanduser()
        if path.is_file():
            if path.suffix not in _BUILDERS:
                raise ValueError(f"dataset path: expected a file of {', '.join(_BUILDERS)}, found {self.path!r}")
            where = {"path": _BUILDERS[path.suffix], "name": self.name, "data_files": str(path)}  # its split is train
        elif path.is_dir():
            where["path"] = str(path.resolve())  # datasets finds no name for one that is "."
            # Apart from the Hub's: where there is no network, what was here once would be taken for the Hub's.
            where["cache_dir"] = str(Path(config.HF_DATASETS_CACHE) / "directories")
        elif path.is_absolute() or self.path.startswith("."):
            raise ValueError(self._nothing(path))
        try:
            loaded = load_dataset(**where, split=self.split, streaming=streaming)
        except (FileNotFoundError, ConnectionError) as error:
            raise ValueError(f"{self._nothing(path)} ({error})") from error
        except ValueError as error:
            field = f"name {self.name!r}" if "BuilderConfig" in str(error) else f"split {self.split!r}"
            raise ValueError(f"dataset {field} of {self.path!r}: {error}") from error
        except StopIteration as error:  # datasets' own, at a file of no bytes
            raise ValueError(f"dataset split: {self.split!r} of {self.path!r} has no tasks") from error
        except DatasetsError as error:
            raise ValueError(f"dataset path: {self.path!r} cannot be read: {error.__cause__ or error}") from error
        if not isinstance(loaded, Dataset | IterableDataset):
            raise ValueError(f"dataset split: expected one of {[*loaded]}, found None")  # noqa: TRY004 - as the others
        return loaded

    def _nothing(self, path: Path) -> str:
        if path.is_dir():
            there = sorted(each.name for each in path.iterdir())
            return f"dataset path: no data files in the directory {self.path!r}; it holds {there}"
        return f"dataset path: no directory, no file, and no dataset that can be had: {self.path!r}"
