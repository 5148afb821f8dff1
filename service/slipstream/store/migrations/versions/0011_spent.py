"""A table of the policy's spending, by the minute"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "spent",
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("purpose", "minute"),
    )


def downgrade() -> None:
    op.drop_table("spent")
