"""The facade: answers that it passed on, and the groups of their rewards"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "facade_groups",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("commit_id", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["commit_id"], ["commits.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("facade_groups", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_facade_groups_commit_id"), ["commit_id"], unique=False)
        batch_op.create_index("ix_facade_groups_state", ["state", "updated_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_facade_groups_task_id"), ["task_id"], unique=False)

    op.create_table(
        "facade_answers",
        sa.Column("msg_id", sa.String(length=256), nullable=False),
        sa.Column("choices", sa.Integer(), nullable=False),
        sa.Column("flaw", sa.String(length=64), nullable=True),
        sa.Column("policy_version", sa.Integer(), nullable=True),
        sa.Column("group_id", sa.String(length=64), nullable=True),
        sa.Column("run_key", sa.String(length=256), nullable=True),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["facade_groups.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("msg_id"),
    )
    with op.batch_alter_table("facade_answers", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_facade_answers_created_at"), ["created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_facade_answers_group_id"), ["group_id"], unique=False)


def downgrade() -> None:
    op.drop_table("facade_answers")
    op.drop_table("facade_groups")
