"""Rows as the lines of the four formats, and back.

What a format cannot say is refused with a reason (`Unsayable`), never written in a way that another program would read
as something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from slipstream.datasets.formats import openai, sharegpt, trinity, trl
from slipstream.datasets.formats.columns import Column
from slipstream.datasets.formats.origin import provenance
from slipstream.datasets.formats.said import Said, Unsayable
from slipstream.datasets.row import Kind, Row

__all__ = ["Column", "Format", "Unsayable", "columns", "from_line", "to_line"]

Format: TypeAlias = Literal["trl", "openai", "trinity", "sharegpt"]
Line: TypeAlias = dict[str, Any]


class _Form(NamedTuple):
    """One kind in one format: its columns, and the ways there and back."""

    columns: Mapping[str, Column]
    write: Callable[[Said], Line]
    read: Callable[[Mapping[str, Any]], Said]


_FORMS: Mapping[tuple[str, Kind], _Form] = {
    ("trl", Kind.SFT): _Form(trl.SFT, trl.sft, trl.from_sft),
    ("trl", Kind.PREFERENCE): _Form(trl.PREFERENCE, trl.preference, trl.from_preference),
    ("trl", Kind.KTO): _Form(trl.KTO, trl.kto, trl.from_kto),
    ("trl", Kind.CORRECTION): _Form(trl.CORRECTION, trl.correction, trl.from_correction),
    ("openai", Kind.SFT): _Form(openai.SFT, openai.sft, openai.from_sft),
    ("openai", Kind.PREFERENCE): _Form(openai.PREFERENCE, openai.preference, openai.from_preference),
    ("trinity", Kind.SFT): _Form(trinity.SFT, trinity.sft, trinity.from_sft),
    ("trinity", Kind.PREFERENCE): _Form(trinity.PREFERENCE, trinity.preference, trinity.from_preference),
    ("sharegpt", Kind.SFT): _Form(sharegpt.SFT, sharegpt.sft, sharegpt.from_sft),
    ("sharegpt", Kind.PREFERENCE): _Form(sharegpt.PREFERENCE, sharegpt.preference, sharegpt.from_preference),
}
"""Each kind in each format. Only TRL has a form for KTO and for corrections."""


def columns(form: Format, kind: Kind) -> Mapping[str, Column]:
    """Return the columns of a file of this format and kind."""
    return _FORMS[form, kind].columns


def to_line(row: Row, form: Format) -> Line:
    """Return the row as one line of a file: a value that JSON can say.

    Raises:
        Unsayable: the format cannot say it; its reason is a short name to count by.
    """
    return _FORMS[form, row.kind].write(Said.of(row))


def from_line(line: Mapping[str, Any], form: Format, kind: Kind, origin: Mapping[str, Any]) -> Row:
    """Return the row of a line, in its normal form (`normal.py`).

    Args:
        origin: the line of `*.provenance.jsonl` beside it.

    Raises:
        KeyError, TypeError, ValueError: it is no such line.
    """
    return _FORMS[form, kind].read(line).row(kind, provenance(origin))
