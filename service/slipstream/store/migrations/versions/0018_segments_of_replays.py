"""Each part of an agent replay's conversation is stored once, and a shadow run holds what its call has not"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_WITHIN = sa.text("segment_id IS NOT NULL")


def upgrade() -> None:
    # in one statement, as in 0016
    of_rows = "INTEGER" if op.get_bind().dialect.name == "sqlite" else "BIGINT"
    op.execute(f"ALTER TABLE run_calls ADD COLUMN segment_id {of_rows} REFERENCES segments (id)")
    op.create_index("ix_run_calls_segment", "run_calls", ["segment_id"], sqlite_where=_WITHIN, postgresql_where=_WITHIN)


def downgrade() -> None:
    # a group is kept whole or not at all, and nothing outside its sealed request tells which form a shadow run has
    op.execute(
        "DELETE FROM groups WHERE id IN (SELECT group_id FROM runs WHERE request IS NOT NULL OR id IN "
        "(SELECT run_pk FROM run_calls WHERE segment_id IS NOT NULL))"
    )
    op.execute("DELETE FROM runs WHERE group_id NOT IN (SELECT id FROM groups)")  # SQLite need not have done so
    op.execute("DELETE FROM run_calls WHERE run_pk NOT IN (SELECT id FROM runs)")
    op.drop_index("ix_run_calls_segment", "run_calls")
    op.drop_column("run_calls", "segment_id")
