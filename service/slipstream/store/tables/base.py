"""The base of all tables."""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import JSON, BigInteger, Integer
from sqlalchemy.orm import DeclarativeBase

from slipstream.tenants import LONGEST_PREFIX

ID_LENGTH = 64
"""Trinity keeps task ids in a column of 64 characters; those that callers and the Explorer see are never longer."""

REF_LENGTH = ID_LENGTH + LONGEST_PREFIX
"""Characters of a session's or a task's id in the store, with its tenant: see `slipstream.tenants`."""

MSG_ID_LENGTH = 256
MSG_REF_LENGTH = MSG_ID_LENGTH + LONGEST_PREFIX
"""Characters of a completion's id, and of one with its tenant."""

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
