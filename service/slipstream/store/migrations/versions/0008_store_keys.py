"""A table of the keys with which the store is encrypted"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "store_keys",
        sa.Column("fingerprint", sa.String(8), nullable=False),
        sa.Column("used_until", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("fingerprint"),
    )


def downgrade() -> None:
    op.drop_table("store_keys")
