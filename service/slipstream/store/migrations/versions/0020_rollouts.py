"""Rollouts of versions, the decisions about them, the units that they were decided by, and scores of live answers"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OF_UNITS = sa.text("unit IS NOT NULL")

_FUNCTION = """
CREATE OR REPLACE FUNCTION decisions_only_grow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% only grows: % is refused', TG_TABLE_NAME, TG_OP;
END $$
"""


def upgrade() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("promotions", sa.Integer(), nullable=False),
        sa.Column("level", sa.Float(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("lane_step", sa.Integer()),
        sa.Column("owner", _ROW_ID),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("opened_by", sa.String(64)),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("begun_at", sa.Float()),
        sa.Column("step_at", sa.Float()),
        sa.Column("promoted_at", sa.Float()),
        sa.Column("proven", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("reason", sa.Text()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_rollouts_ended", "rollouts", ["ended_at"])
    op.create_table(
        "rollout_decisions",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("rollout_id", _ROW_ID, sa.ForeignKey("rollouts.id"), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("key", sa.String(64)),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.UniqueConstraint("rollout_id", "revision"),
    )
    op.create_table(
        "rollout_units",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("rollout_id", _ROW_ID, sa.ForeignKey("rollouts.id", ondelete="CASCADE"), nullable=False),
        sa.Column("unit", sa.String(16)),
        sa.Column("treated", sa.Boolean(), nullable=False),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column("failure", sa.Float(), nullable=False),
        sa.Column("latency", sa.Float(), nullable=False),
        sa.Column("format", sa.Float()),
        sa.Column("reward", sa.Float()),
        sa.Column("feedback", sa.Float(), nullable=False),
        sa.Column("component", sa.Float()),
        sa.UniqueConstraint("rollout_id", "unit"),
    )
    op.create_index("ix_rollout_units_order", "rollout_units", ["rollout_id", "id"])
    op.create_table(
        "live_scores",
        sa.Column(
            "call_id", _ROW_ID, sa.ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("value", sa.Float()),
        sa.Column("breakdown", sa.JSON(), nullable=False),
        sa.Column("scored_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_units_order", "units", ["version", "first_at"])
    op.create_index("ix_calls_unit", "calls", ["unit"], sqlite_where=_OF_UNITS, postgresql_where=_OF_UNITS)
    if op.get_bind().dialect.name == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER rollout_decisions_refuses_{what.lower()} BEFORE {what} ON rollout_decisions "
                f"BEGIN SELECT RAISE(ABORT, 'rollout_decisions only grows: {what} is refused'); END"
            )
        return
    op.execute(_FUNCTION)
    called = "EXECUTE FUNCTION decisions_only_grow()"
    for name, when, each in (("rows", "UPDATE OR DELETE", "ROW"), ("whole", "TRUNCATE", "STATEMENT")):
        op.execute(
            f"CREATE TRIGGER rollout_decisions_{name} BEFORE {when} ON rollout_decisions FOR EACH {each} {called}"
        )


def downgrade() -> None:
    op.drop_index("ix_calls_unit", "calls")
    op.drop_index("ix_units_order", "units")
    for table in ("live_scores", "rollout_units", "rollout_decisions", "rollouts"):
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION decisions_only_grow()")
