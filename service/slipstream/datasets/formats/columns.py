"""Types of a file's columns, the same for Parquet and for the header of a data set's card."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Column(StrEnum):
    """Type of a column. A value that is missing is null.

    Messages and tools are JSON to Hugging Face's `datasets` (its feature `Json`). As structs they would all have the
    keys of all others, with None in them: a call would have arguments that nobody gave.
    """

    TEXT = "text"
    FLAG = "flag"
    JSON = "json"
    """Any value, kept as JSON text in Parquet."""
    JSONS = "jsons"
    """A list of such values."""
    TEXTS = "texts"
    """A list of messages with two texts: `role` and `content`."""
    TURN = "turn"
    """A message with two texts: `from` and `value`."""
    TURNS = "turns"
    """A list of these."""

    @property
    def feature(self) -> dict[str, Any]:
        """The column's type as `datasets` writes it into the schema of a Parquet file."""
        text = {"dtype": "string", "_type": "Value"}
        chat = {"role": text, "content": text}
        turn = {"from": text, "value": text}
        features: dict[Column, dict[str, Any]] = {
            Column.TEXT: text,
            Column.FLAG: {"dtype": "bool", "_type": "Value"},
            Column.JSON: {"_type": "Json"},
            Column.JSONS: {"feature": {"_type": "Json"}, "_type": "List"},
            Column.TEXTS: {"feature": chat, "_type": "List"},
            Column.TURN: turn,
            Column.TURNS: {"feature": turn, "_type": "List"},
        }
        return features[self]

    def in_card(self, name: str) -> dict[str, Any]:
        """The column as the header of a card lists it, under `dataset_info.features`."""
        turn = [{"name": key, "dtype": "string"} for key in ("from", "value")]
        chat = [{"name": key, "dtype": "string"} for key in ("role", "content")]
        types: dict[Column, dict[str, Any]] = {
            Column.TEXT: {"dtype": "string"},
            Column.FLAG: {"dtype": "bool"},
            Column.JSON: {"dtype": "json"},
            Column.JSONS: {"list": "json"},
            Column.TEXTS: {"list": chat},
            Column.TURN: {"struct": turn},
            Column.TURNS: {"list": turn},
        }
        return {"name": name, **types[self]}
