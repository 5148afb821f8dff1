"""Provenance from a line of a data set's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.datasets.row import Provenance, Source


def provenance(line: Mapping[str, Any]) -> Provenance:
    """Return what `Provenance.written` wrote. The session is only known by its hash, and has that as its name.

    Raises:
        KeyError, TypeError, ValueError: it is no such line.
    """
    return Provenance(
        task=line["task"],
        session=line["session_hash"],
        tenant=line["tenant"],
        source=Source(line["source"]),
        group=line["group"],
        msg_ids=tuple(line["msg_ids"]),
        models=tuple(line["models"]),
        rewards=tuple(line["rewards"]),
        breakdown=dict(line["breakdown"]),
        feedback=tuple(line["feedback"]),
        labels=tuple(line["labels"]),
        created_at=line["created_at"],
        held_out_at=line.get("held_out_at"),
        said_in=line.get("said_in"),
    )
