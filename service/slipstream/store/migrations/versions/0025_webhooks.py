"""The outbox of webhooks: events about versions, and the receivers that are to be told"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "webhook_events",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("given", sa.Boolean(), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_events_at", "webhook_events", ["at"])
    op.create_index("ix_webhook_events_given", "webhook_events", ["given"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("receiver", sa.String(64), primary_key=True),
        sa.Column(
            "event_id", _ROW_ID, sa.ForeignKey("webhook_events.id", ondelete="CASCADE"), primary_key=True,
            autoincrement=False,
        ),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("owner", _ROW_ID),
        sa.Column("error", sa.Text()),
    )  # fmt: skip
    op.create_index("ix_webhook_deliveries_event_id", "webhook_deliveries", ["event_id"])
    op.create_index("ix_webhook_deliveries_due", "webhook_deliveries", ["due_at"])


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_events")
