"""`manifest.json`: contents and making of a data set."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from slipstream.datasets.row import Kind

MANIFEST = "manifest.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Spread(_Part):
    """Distribution of a number over the rows.

    Attributes:
        quantiles: at 5, 25, 50, 75 and 95 percent, of at most `summary.SAMPLE` values, drawn at random.
    """

    count: int
    mean: float
    least: float
    most: float
    quantiles: tuple[float, float, float, float, float]


class Counts(_Part):
    """Numbers about the rows that are there.

    Attributes:
        rows: of each split.
        sources: rows of each origin (`Source`).
        models: answers of each model: the production model's name, or `version:N` of the policy.
        labels: rows whose task has the label.
        rewards: of the taught (or chosen) answers that have one.
        rejected_rewards: of the rejected answers of a preference.
        characters: of a row's line.
        messages: of a row, its answers among them.
        tools: of a row, where the format says them apart from the text.
    """

    rows: dict[str, int]
    sources: dict[str, int]
    models: dict[str, int]
    labels: dict[str, int]
    rewards: Spread | None = None
    rejected_rewards: Spread | None = None
    characters: Spread | None = None
    messages: Spread | None = None
    tools: Spread | None = None


class Erasure(_Part):
    """A removal of rows.

    Attributes:
        at: when.
        rows: of each split, that were removed.
        task_hashes: of the tasks that these were of.
    """

    at: datetime
    rows: dict[str, int]
    task_hashes: tuple[str, ...]


class Manifest(_Part):
    """The whole file.

    Attributes:
        version: of this layout.
        name: of the folder.
        files: how they are written.
        made_at: when; with a time zone.
        dropped: rows that were not written, by reason.
        sha256: digests of the files.
        digest: SHA-256 over these: two data sets with the same have the same rows in the same order.
        dataset: `dataset` of data.yaml.
        about: more of how it was made, as its maker said: the sidecar's version, rules of redaction, capture.
    """

    version: Literal[1] = 1
    name: str
    kind: Kind
    format: Literal["trl", "openai", "trinity", "sharegpt"]
    files: Literal["jsonl", "parquet"]
    made_at: datetime
    counts: Counts
    dropped: dict[str, int]
    sha256: dict[str, str]
    digest: str
    dataset: dict[str, Any]
    about: dict[str, Any] = Field(default_factory=dict)
    erased: tuple[Erasure, ...] = ()
