"""The share of users that a version answers, the outcomes by unit, and who answered each call"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

_CALLS = ("opted_out", "fell_back", "unit", "arm", "variant")


def upgrade() -> None:
    op.create_table(
        "serving",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("version", sa.Integer()),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("salt", sa.String(16), nullable=False),
        sa.Column("killed", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lane_step", sa.Integer()),
        sa.Column("lane", sa.Text()),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "units",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("unit", sa.String(16), nullable=False),
        sa.Column("arm", sa.String(16), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.Column("moved_at", sa.Float()),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("fallbacks", sa.Integer(), nullable=False),
        sa.Column("slowest", sa.Float(), nullable=False),
        sa.Column("sampled", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_units_unit", "units", ["version", "unit"], unique=True)
    op.create_index("ix_units_last", "units", ["last_at"])
    op.add_column("calls", sa.Column("variant", sa.String(32)))
    op.add_column("calls", sa.Column("arm", sa.String(16)))
    op.add_column("calls", sa.Column("unit", sa.String(16)))
    op.add_column("calls", sa.Column("fell_back", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("calls", sa.Column("opted_out", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    # an earlier release takes each call's answer for production's; with its task goes what hangs on it
    op.execute("DELETE FROM tasks WHERE id IN (SELECT task_id FROM calls WHERE variant LIKE 'version:%')")
    op.execute("DELETE FROM calls WHERE task_id NOT IN (SELECT id FROM tasks)")  # SQLite need not have done so
    for column in _CALLS:
        op.drop_column("calls", column)
    op.drop_table("units")
    op.drop_table("serving")
