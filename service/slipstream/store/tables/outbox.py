"""Tables of the outbox: events that receivers of webhooks are to be told, until they were."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class WebhookEventRow(Base):
    """One event, written with the decision that it tells of."""

    __tablename__ = "webhook_events"
    __table_args__ = (Index("ix_webhook_events_at", "at"), Index("ix_webhook_events_given", "given"), NEVER_AGAIN)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    """In the order in which they happened."""
    given: Mapped[bool] = mapped_column(default=False)
    """It has a delivery for each receiver that wants it."""
    name: Mapped[str] = mapped_column(String(64))
    """Its id for receivers, the same in each try."""
    type: Mapped[str] = mapped_column(String(64))
    """As in `webhooks.events.EventType`."""
    at: Mapped[float]
    data: Mapped[dict[str, Any]]


class WebhookDeliveryRow(Base):
    """One event for one receiver. It is deleted once the receiver has it, or the event is too old."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (Index("ix_webhook_deliveries_due", "due_at"),)

    receiver: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Its name in the configuration."""
    event_id: Mapped[RowId] = mapped_column(
        ForeignKey("webhook_events.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, index=True
    )
    due_at: Mapped[float]
    """Time from which it is tried, or tried again."""
    attempts: Mapped[int]
    """Tries that failed."""
    owner: Mapped[RowId | None]
    """The sidecar that tries it at the moment."""
    error: Mapped[str | None] = mapped_column(Text)
    """Reason for which the last try failed."""
