"""Deaths of the process that held a row, and captured exchanges that were set apart for that"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_TABLES = ("captured", "tasks", "runs")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("tries", sa.Integer(), nullable=False, server_default="0"))
    tried = sa.text("tries > 0")
    op.create_index("ix_runs_tried", "runs", ["state", "tries"], sqlite_where=tried, postgresql_where=tried)
    op.create_table(
        "quarantined_exchanges",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("quarantined_exchanges")
    op.drop_index("ix_runs_tried", "runs")
    for table in _TABLES:
        op.drop_column(table, "tries")
