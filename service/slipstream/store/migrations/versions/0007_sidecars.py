"""Several sidecars share a store: who is there, and who holds what"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NOBODY = 0


def upgrade() -> None:
    op.create_table(
        "sidecars",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    # What was there before belongs to one whose lease is over: the first sidecar takes it over like any other's.
    nobody = sa.insert(sa.table("sidecars", *map(sa.column, ("id", "name", "lease_until", "started_at"))))
    op.execute(nobody.values(id=_NOBODY, name="earlier", lease_until=0.0, started_at=0.0))
    op.add_column("captured", sa.Column("owner", _ROW_ID, nullable=False, server_default=str(_NOBODY)))
    op.create_index("ix_captured_owner", "captured", ["owner"])
    op.add_column("tasks", sa.Column("owner", _ROW_ID, nullable=True))
    op.add_column("runs", sa.Column("owner", _ROW_ID, nullable=True))
    op.execute(f"UPDATE runs SET owner = {_NOBODY} WHERE state = 'running'")  # noqa: S608


def downgrade() -> None:
    op.execute("UPDATE runs SET state = 'pending' WHERE state = 'running'")
    op.drop_column("runs", "owner")
    op.drop_column("tasks", "owner")
    op.drop_index("ix_captured_owner", "captured")
    op.drop_column("captured", "owner")
    op.drop_table("sidecars")
