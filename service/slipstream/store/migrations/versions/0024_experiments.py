"""Experiments, the decisions about them, and the units that they were decided by"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("lane_step", sa.Integer()),
        sa.Column("owner", _ROW_ID),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("started_by", sa.String(64)),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("begun_at", sa.Float()),
        sa.Column("settling_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("winner", sa.String(8)),
        sa.Column("rollout_id", _ROW_ID, sa.ForeignKey("rollouts.id")),
        sa.Column("reason", sa.Text()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_experiments_ended", "experiments", ["ended_at"])
    op.create_table(
        "experiment_decisions",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("experiment_id", _ROW_ID, sa.ForeignKey("experiments.id"), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("winner", sa.String(8)),
        sa.Column("key", sa.String(64)),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.UniqueConstraint("experiment_id", "revision"),
    )
    op.create_table(
        "experiment_units",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("experiment_id", _ROW_ID, sa.ForeignKey("experiments.id", ondelete="CASCADE"), nullable=False),
        sa.Column("unit", sa.String(16)),
        sa.Column("treated", sa.Boolean(), nullable=False),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column("measured", sa.JSON(), nullable=False),
        sa.UniqueConstraint("experiment_id", "unit"),
    )
    op.create_index("ix_experiment_units_order", "experiment_units", ["experiment_id", "id"])
    if op.get_bind().dialect.name == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER experiment_decisions_refuses_{what.lower()} BEFORE {what} ON experiment_decisions "
                f"BEGIN SELECT RAISE(ABORT, 'experiment_decisions only grows: {what} is refused'); END"
            )
        return
    called = "EXECUTE FUNCTION decisions_only_grow()"  # of revision 0020
    for name, when, each in (("rows", "UPDATE OR DELETE", "ROW"), ("whole", "TRUNCATE", "STATEMENT")):
        op.execute(
            f"CREATE TRIGGER experiment_decisions_{name} BEFORE {when} ON experiment_decisions FOR EACH {each} {called}"
        )


def downgrade() -> None:
    for table in ("experiment_units", "experiment_decisions", "experiments"):
        op.drop_table(table)
