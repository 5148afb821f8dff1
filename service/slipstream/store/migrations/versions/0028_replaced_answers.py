"""Answers whose place a retry took"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "replaced_answers",
        sa.Column("msg_id", sa.String(328), primary_key=True),
        sa.Column(
            "call_id", _ROW_ID, sa.ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("same", sa.Boolean(), nullable=False),
    )
    op.create_index("ix_replaced_answers_call_id", "replaced_answers", ["call_id"])


def downgrade() -> None:
    op.drop_table("replaced_answers")
