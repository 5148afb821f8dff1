"""Several sidecars share a store: who is at a delivery, and where calls of agent replays are under way"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NOBODY = 0


def upgrade() -> None:
    op.add_column("commits", sa.Column("owner", _ROW_ID, nullable=True))
    op.create_table(
        "calls_under_way",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("run_pk", _ROW_ID, nullable=False),
        sa.Column("owner", _ROW_ID, nullable=False),
        sa.Column("reading", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_calls_under_way_run", "calls_under_way", ["run_pk"])
    # As with what is captured: they belong to one that is gone.
    op.execute(
        "INSERT INTO calls_under_way (run_pk, owner, reading) "  # noqa: S608
        f"SELECT id, {_NOBODY}, false FROM runs WHERE state = 'open' AND called"
    )


def downgrade() -> None:
    op.drop_table("calls_under_way")
    op.drop_column("commits", "owner")
