"""Agent replays that have begun a call"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("runs", sa.Column("called", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE runs SET called = true WHERE id IN (SELECT run_pk FROM run_calls)")


def downgrade() -> None:
    op.drop_column("runs", "called")
