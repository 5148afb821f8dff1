"""Pairs of answers that are shown to annotators, and their judgements"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "preference_pairs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("task_ref", sa.String(136), nullable=False),
        sa.Column("session_ref", sa.String(136), nullable=False),
        sa.Column("group_id", sa.String(64)),
        sa.Column("call_id", _ROW_ID),
        sa.Column("left_run", _ROW_ID),
        sa.Column("right_run", _ROW_ID),
        sa.Column("left_variant", sa.String(32), nullable=False),
        sa.Column("right_variant", sa.String(32), nullable=False),
        sa.Column("identical", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("judged", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.UniqueConstraint("group_id", "kind"),
    )
    op.create_index("ix_preference_pairs_open", "preference_pairs", ["judged", "created_at"])
    for column in ("task_ref", "session_ref", "updated_at"):
        op.create_index(f"ix_preference_pairs_{column}", "preference_pairs", [column])
    op.create_table(
        "preference_offers",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("pair_id", sa.String(64), sa.ForeignKey("preference_pairs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("annotator", sa.String(64), nullable=False),
        sa.Column("swapped", sa.Boolean(), nullable=False),
        sa.Column("offered_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("choice", sa.String(16)),
        sa.Column("reason", sa.Text()),
        sa.Column("judged_at", sa.Float()),
        sa.Column("key", sa.String(64)),
        sa.UniqueConstraint("pair_id", "annotator"),
    )
    op.create_index("ix_preference_offers_annotator", "preference_offers", ["annotator", "judged_at"])


def downgrade() -> None:
    op.drop_table("preference_offers")
    op.drop_table("preference_pairs")
