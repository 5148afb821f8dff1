"""Each part of a conversation is stored once"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_COLUMNS = {"segment_id": "ix_calls_segment", "original_segment_id": "ix_calls_original_segment"}
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "segments",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("parent_id", _ROW_ID, sa.ForeignKey("segments.id")),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sqlite_autoincrement=True,
    )
    child = sa.text("parent_id IS NOT NULL")
    op.create_index("ix_segments_parent", "segments", ["parent_id"], sqlite_where=child, postgresql_where=child)
    # in one statement: alembic makes two of it, and SQLite has none for a constraint alone
    of_rows = "INTEGER" if op.get_bind().dialect.name == "sqlite" else "BIGINT"
    for column, index in _COLUMNS.items():
        op.execute(f"ALTER TABLE calls ADD COLUMN {column} {of_rows} REFERENCES segments (id)")
        within = sa.text(f"{column} IS NOT NULL")
        op.create_index(index, "calls", [column], sqlite_where=within, postgresql_where=within)


def downgrade() -> None:
    for column, index in _COLUMNS.items():
        op.execute(f"DELETE FROM calls WHERE {column} IS NOT NULL")  # noqa: S608 - ours
        op.drop_index(index, "calls")
        op.drop_column("calls", column)
    op.drop_table("segments")
