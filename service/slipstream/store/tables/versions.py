"""Tables of the policy's versions, and of the names that people give them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.states import VersionState, state_type
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class VersionRow(Base):
    """One policy version: a checkpoint that was found, a version that the Explorer served, or both."""

    __tablename__ = "versions"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[VersionState] = mapped_column(
        state_type(VersionState), default=VersionState.SEEN, server_default=VersionState.SEEN.value
    )
    state_at: Mapped[float | None]
    found_at: Mapped[float | None]
    """The time at which a sidecar first knew of it."""
    seen_at: Mapped[float | None]
    """Since when the Explorer serves it, or served it last; null while it never has."""
    last_commit_id: Mapped[int | None]
    """The last commit that it can have been trained on."""
    experiences: Mapped[int] = mapped_column(default=0)
    """Experiences delivered before it was served, all together."""
    parent: Mapped[int | None]
    """The version that its training went on from."""
    checkpoint: Mapped[str | None] = mapped_column(Text)
    """Its folder in the Trainer's directory, when it was found; the Trainer may have deleted it since."""
    made_at: Mapped[float | None]
    """The time at which the Trainer wrote it, by the clock of the file system; another time is another training."""
    trained_on: Mapped[dict[str, Any] | None]
    metrics: Mapped[dict[str, Any] | None]
    """Figures of its training step, by the Trainer's own names."""
    weights: Mapped[str | None] = mapped_column(String(64))
    """SHA-256 of its weight files, in hexadecimal; null until it was computed, or where they were gone before."""
    kept_path: Mapped[str | None] = mapped_column(Text)
    kept_at: Mapped[float | None]
    kept_by: Mapped[str | None] = mapped_column(String(16))
    """sight (it was among the newest), hand, alias or rollout. Only the first is released by itself."""
    replaced_at: Mapped[float | None]
    """The time at which another training reached the number of a version that is kept or in use."""
    reward_count: Mapped[int] = mapped_column(default=0, server_default="0")
    reward_sum: Mapped[float] = mapped_column(default=0.0, server_default="0")
    reward_squares: Mapped[float] = mapped_column(default=0.0, server_default="0")
    """Sums over the runs that it answered and whose groups were delivered, which retention deletes."""


class AliasRow(Base):
    """A name for a version."""

    __tablename__ = "aliases"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int] = mapped_column(ForeignKey("versions.version"), index=True)
    changed_at: Mapped[float]


class AliasChangeRow(Base):
    """One change of an alias. Rows are only ever added."""

    __tablename__ = "alias_history"
    __table_args__ = (Index("ix_alias_history_name", "name", "id"), NEVER_AGAIN)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    version: Mapped[int | None]
    """Null where the alias was removed."""
    at: Mapped[float]
    key: Mapped[str | None] = mapped_column(String(64))
    """The name of the key that asked for it; null where none is asked for."""
