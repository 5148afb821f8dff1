"""A digest of the weights of each version, the tokens of each day, and what waits for a second person"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("versions", sa.Column("weights", sa.String(64)))
    op.add_column("rollouts", sa.Column("asked", sa.JSON()))
    op.create_table(
        "token_days",
        sa.Column("day", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("answers", sa.BigInteger(), nullable=False),
        sa.Column("input", sa.BigInteger(), nullable=False),
        sa.Column("output", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("token_days")
    with op.batch_alter_table("rollouts") as rollouts:
        rollouts.drop_column("asked")
    with op.batch_alter_table("versions") as versions:
        versions.drop_column("weights")
