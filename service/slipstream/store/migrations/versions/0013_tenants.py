"""The tenant of a task, and room for the tenant in the ids of what callers name"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_TENANT = 72
"""Characters that an id has more than before."""

_WIDER = (
    ("tasks", "id", 64),
    ("tasks", "session_id", 64),
    ("calls", "task_id", 64),
    ("calls", "msg_id", 256),
    ("groups", "task_id", 64),
    ("feedback_targets", "ref", 256),
    ("marks", "task_id", 64),
    ("marks", "msg_id", 256),
    ("erasures", "ref", 64),
    ("facade_groups", "task_id", 64),
)


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":  # which does not look at lengths
        for table, column, length in _WIDER:
            op.alter_column(table, column, type_=sa.String(length + _TENANT))
    for table in ("tasks", "facade_answers"):  # what there is keeps its ids: they are those of the default tenant
        op.add_column(table, sa.Column("tenant", sa.String(64), nullable=False, server_default="default"))
    op.create_index("ix_tasks_tenant", "tasks", ["tenant", "updated_at", "id"])


def downgrade() -> None:
    """The columns stay wide: there may be ids that need it, and nothing minds."""
    op.drop_index("ix_tasks_tenant", "tasks")
    for table in ("tasks", "facade_answers"):
        op.drop_column(table, "tenant")
