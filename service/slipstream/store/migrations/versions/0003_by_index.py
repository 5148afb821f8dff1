"""Indexes for what the stages ask, however much the store holds"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_INDEXES = (
    ("tasks", "ix_tasks_session_id", ["session_id"], "ix_tasks_session", ["session_id", "updated_at"]),
    ("groups", "ix_groups_state", ["state"], "ix_groups_state", ["state", "updated_at"]),
    ("commits", "ix_commits_state", ["state"], "ix_commits_state", ["state", "ended_at"]),
    (
        "feedback_targets",
        "ix_feedback_targets_ref",
        ["kind", "ref"],
        "ix_feedback_targets_ref",
        ["kind", "ref", "state"],
    ),
    ("marks", "ix_marks_state", ["state"], "ix_marks_state", ["state", "expires_at"]),
)
"""For each table the index that goes, and the one that comes."""


def upgrade() -> None:
    for table, old, _, new, columns in _INDEXES:
        op.drop_index(old, table)
        op.create_index(new, table, columns)
    op.create_index("ix_facade_groups_updated_at", "facade_groups", ["updated_at"])
    op.drop_index("ix_calls_msg_id", "calls")
    op.create_index("ix_calls_msg_id", "calls", [sa.text("(id / 16384)"), "msg_id"])
    op.drop_index("ix_tasks_state", "tasks")
    undecided = sa.column("decided", sa.Boolean()).is_(False)
    op.create_index(
        "ix_tasks_undecided", "tasks", ["state", "updated_at"], sqlite_where=undecided, postgresql_where=undecided
    )
    op.add_column("commits", sa.Column("delivered", sa.Integer(), nullable=True))
    op.execute(
        "UPDATE commits SET delivered = added.total FROM ("
        "SELECT id, sum(CASE WHEN state = 'delivered' THEN experiences ELSE 0 END) OVER (ORDER BY id) AS total "
        "FROM commits) AS added WHERE added.id = commits.id AND commits.ended_at IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_column("commits", "delivered")
    op.drop_index("ix_tasks_undecided", "tasks")
    op.create_index("ix_tasks_state", "tasks", ["state", "decided", "updated_at"])
    op.drop_index("ix_calls_msg_id", "calls")
    op.create_index("ix_calls_msg_id", "calls", ["msg_id"])
    op.drop_index("ix_facade_groups_updated_at", "facade_groups")
    for table, old, columns, new, _ in _INDEXES:
        op.drop_index(new, table)
        op.create_index(old, table, columns)
