"""A table of deletions on request"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "erasures",
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("ref", sa.String(64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("pending", sa.Boolean(), nullable=False),
        sa.Column("told", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "ref"),
    )
    op.create_index("ix_erasures_at", "erasures", ["at"])
    pending = sa.column("pending", sa.Boolean()).is_(True)
    op.create_index("ix_erasures_pending", "erasures", ["kind"], sqlite_where=pending, postgresql_where=pending)


def downgrade() -> None:
    op.drop_table("erasures")
