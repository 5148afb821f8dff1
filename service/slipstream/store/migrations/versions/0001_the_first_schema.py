"""The first schema"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "commits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("trigger", sa.String(length=16), nullable=False),
        sa.Column("groups", sa.Integer(), nullable=False),
        sa.Column("experiences", sa.Integer(), nullable=False),
        sa.Column("explorer_ready", sa.Integer(), nullable=False),
        sa.Column("explorer_total", sa.Integer(), nullable=False),
        sa.Column("explorer_step", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("commits", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_commits_state"), ["state"], unique=False)

    op.create_table(
        "feedback",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("rating", sa.Integer(), nullable=True),
        sa.Column("thumbs", sa.String(length=8), nullable=True),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_feedback_created_at"), ["created_at"], unique=False)

    op.create_table(
        "marks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=True),
        sa.Column("msg_id", sa.String(length=256), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("meta", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("marks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_marks_created_at"), ["created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_marks_msg_id"), ["msg_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_marks_state"), ["state"], unique=False)
        batch_op.create_index(batch_op.f("ix_marks_task_id"), ["task_id"], unique=False)

    op.create_table(
        "tasks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("marked", sa.Boolean(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("meta", sa.JSON(), nullable=False),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.Column("selected", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tasks_session_id"), ["session_id"], unique=False)
        batch_op.create_index("ix_tasks_state", ["state", "decided", "updated_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_updated_at"), ["updated_at"], unique=False)

    op.create_table(
        "versions",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("last_commit_id", sa.Integer(), nullable=True),
        sa.Column("experiences", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("version"),
    )
    op.create_table(
        "calls",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("msg_id", sa.String(length=256), nullable=True),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("latency", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("task_id", "position"),
    )
    with op.batch_alter_table("calls", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_calls_msg_id"), ["msg_id"], unique=False)

    op.create_table(
        "groups",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=False),
        sa.Column("call_id", _ROW_ID, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("commit_id", sa.Integer(), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["calls.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["commit_id"],
            ["commits.id"],
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("groups", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_groups_call_id"), ["call_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_groups_commit_id"), ["commit_id"], unique=False)
        batch_op.create_index("ix_groups_state", ["state"], unique=False)
        batch_op.create_index(batch_op.f("ix_groups_task_id"), ["task_id"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("group_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("msg_id", sa.String(length=256), nullable=True),
        sa.Column("request", sa.LargeBinary(), nullable=True),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("latency", sa.Double(), nullable=True),
        sa.Column("policy_version", sa.Integer(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("breakdown", sa.JSON(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("group_id", "run_id"),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_msg_id"), ["msg_id"], unique=False)
        batch_op.create_index("ix_runs_state", ["state", "due_at"], unique=False)

    op.create_table(
        "feedback_targets",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("feedback_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("ref", sa.String(length=256), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("matched_to", sa.String(length=16), nullable=True),
        sa.Column("run_pk", _ROW_ID, nullable=True),
        sa.Column("call_pk", _ROW_ID, nullable=True),
        sa.ForeignKeyConstraint(["call_pk"], ["calls.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["feedback_id"], ["feedback.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("feedback_targets", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_feedback_targets_call_pk"), ["call_pk"], unique=False)
        batch_op.create_index(batch_op.f("ix_feedback_targets_feedback_id"), ["feedback_id"], unique=False)
        batch_op.create_index("ix_feedback_targets_ref", ["kind", "ref"], unique=False)
        batch_op.create_index(batch_op.f("ix_feedback_targets_run_pk"), ["run_pk"], unique=False)
        batch_op.create_index(batch_op.f("ix_feedback_targets_state"), ["state"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("feedback_targets", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_feedback_targets_state"))
        batch_op.drop_index(batch_op.f("ix_feedback_targets_run_pk"))
        batch_op.drop_index("ix_feedback_targets_ref")
        batch_op.drop_index(batch_op.f("ix_feedback_targets_feedback_id"))
        batch_op.drop_index(batch_op.f("ix_feedback_targets_call_pk"))

    op.drop_table("feedback_targets")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index("ix_runs_state")
        batch_op.drop_index(batch_op.f("ix_runs_msg_id"))

    op.drop_table("runs")
    with op.batch_alter_table("groups", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_groups_task_id"))
        batch_op.drop_index("ix_groups_state")
        batch_op.drop_index(batch_op.f("ix_groups_commit_id"))
        batch_op.drop_index(batch_op.f("ix_groups_call_id"))

    op.drop_table("groups")
    with op.batch_alter_table("calls", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_calls_msg_id"))

    op.drop_table("calls")
    op.drop_table("versions")
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tasks_updated_at"))
        batch_op.drop_index("ix_tasks_state")
        batch_op.drop_index(batch_op.f("ix_tasks_session_id"))

    op.drop_table("tasks")
    with op.batch_alter_table("marks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_marks_task_id"))
        batch_op.drop_index(batch_op.f("ix_marks_state"))
        batch_op.drop_index(batch_op.f("ix_marks_msg_id"))
        batch_op.drop_index(batch_op.f("ix_marks_created_at"))

    op.drop_table("marks")
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_feedback_created_at"))

    op.drop_table("feedback")
    with op.batch_alter_table("commits", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_commits_state"))

    op.drop_table("commits")
