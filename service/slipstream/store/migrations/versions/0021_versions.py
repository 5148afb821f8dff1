"""A registry of the policy's versions: state, checkpoint, what each was trained on, and names for them"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("versions") as versions:
        versions.alter_column("seen_at", existing_type=sa.Float(), nullable=True)
        versions.add_column(sa.Column("state", sa.String(16), nullable=False, server_default="seen"))
        for column, kind in (
            ("state_at", sa.Float()),
            ("found_at", sa.Float()),
            ("parent", sa.Integer()),
            ("checkpoint", sa.Text()),
            ("made_at", sa.Float()),
            ("trained_on", sa.JSON()),
            ("metrics", sa.JSON()),
            ("kept_path", sa.Text()),
            ("kept_at", sa.Float()),
            ("kept_by", sa.String(16)),
            ("replaced_at", sa.Float()),
        ):
            versions.add_column(sa.Column(column, kind))
        versions.add_column(sa.Column("reward_count", sa.Integer(), nullable=False, server_default="0"))
        versions.add_column(sa.Column("reward_sum", sa.Float(), nullable=False, server_default="0"))
        versions.add_column(sa.Column("reward_squares", sa.Float(), nullable=False, server_default="0"))
    op.execute("UPDATE versions SET found_at = seen_at")
    op.create_table(
        "aliases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer(), sa.ForeignKey("versions.version"), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_aliases_version", "aliases", ["version"])
    op.create_table(
        "alias_history",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer()),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("key", sa.String(64)),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_alias_history_name", "alias_history", ["name", "id"])


def downgrade() -> None:
    op.drop_table("alias_history")
    op.drop_table("aliases")
    # a release of before knows versions that the Explorer served, and no others
    op.execute("DELETE FROM versions WHERE seen_at IS NULL")
    with op.batch_alter_table("versions") as versions:
        for column in (
            "reward_squares", "reward_sum", "reward_count", "replaced_at", "kept_by", "kept_at", "kept_path", "metrics",
            "trained_on", "made_at", "checkpoint", "parent", "found_at", "state_at", "state",
        ):  # fmt: skip
            versions.drop_column(column)
        versions.alter_column("seen_at", existing_type=sa.Float(), nullable=False)
