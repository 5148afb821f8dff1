"""The base of all tables."""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import JSON, BigInteger, Integer
from sqlalchemy.orm import DeclarativeBase

RowId = Annotated[int, "a row's number"]
"""64 bits: 32 are used up within days by an agent that is busy enough. SQLite numbers rows by no other type."""

NEVER_AGAIN = {"sqlite_autoincrement": True}
"""Option of a table whose rows are known by their numbers outside of a transaction: the number of a deleted row is not
used again. SQLite uses it for the next row otherwise; PostgreSQL's sequences never do."""


class Base(DeclarativeBase):
    """A table. `metadata` knows all of them, whichever module was imported: see the package."""

    type_annotation_map = {  # noqa: RUF012 - read by SQLAlchemy as it is
        dict[str, Any]: JSON,
        list[str]: JSON,
        RowId: BigInteger().with_variant(Integer(), "sqlite"),
    }
