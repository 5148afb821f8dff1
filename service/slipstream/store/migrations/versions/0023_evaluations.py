"""Evaluations of versions on fixed cases, and the value of each answer"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "evaluations",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("suite", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("trigger", sa.String(16), nullable=False),
        sa.Column("asked_by", sa.String(64)),
        sa.Column("owner", _ROW_ID),
        sa.Column("server", sa.String(16)),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("begun_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON()),
        sa.Column("superseded", sa.Boolean(), nullable=False, server_default=sa.false()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_evaluations_state", "evaluations", ["state"])
    op.create_index("ix_evaluations_version", "evaluations", ["version", "suite"])
    op.create_table(
        "evaluation_cases",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("evaluation_id", _ROW_ID, sa.ForeignKey("evaluations.id", ondelete="CASCADE"), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("call_id", _ROW_ID, sa.ForeignKey("calls.id", ondelete="SET NULL")),
        sa.UniqueConstraint("evaluation_id", "position"),
    )
    op.create_index("ix_evaluation_cases_call_id", "evaluation_cases", ["call_id"])
    op.create_table(
        "evaluation_answers",
        sa.Column("evaluation_id", _ROW_ID, sa.ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True),
        sa.Column("arm", sa.String(16), primary_key=True),
        sa.Column("repeat", sa.Integer(), primary_key=True),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("value", sa.Float()),
        sa.Column("breakdown", sa.JSON(), nullable=False),
        sa.Column("latency", sa.Float()),
    )


def downgrade() -> None:
    op.drop_table("evaluation_answers")
    op.drop_table("evaluation_cases")
    op.drop_table("evaluations")
