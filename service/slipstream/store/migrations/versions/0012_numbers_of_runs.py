"""The number of a run that was deleted is not another run's"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_AGAIN, _NEVER_AGAIN = "PRIMARY KEY (id)", "PRIMARY KEY (id AUTOINCREMENT)"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":  # a sequence's numbers come once
        # SQLite makes the table that it counts in with the first table that asks for it.
        op.execute("CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT)")
        op.execute("DROP TABLE counted")
        op.execute("INSERT INTO sqlite_sequence (name, seq) SELECT 'runs', coalesce(max(id), 0) FROM runs")
        _define(_AGAIN, _NEVER_AGAIN)


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _define(_NEVER_AGAIN, _AGAIN)
        op.execute("DELETE FROM sqlite_sequence WHERE name = 'runs'")


def _define(before: str, after: str) -> None:
    """SQLite knows no such change, and a new table in the place of the old one would empty those whose rows go with
    their runs: as in 0005. The rows are the same with and without."""
    connection = op.get_bind()
    named = "type = 'table' AND name = 'runs'"
    version = connection.scalar(sa.text("PRAGMA schema_version"))
    op.execute("PRAGMA writable_schema = ON")
    op.execute(f"UPDATE sqlite_master SET sql = replace(sql, '{before}', '{after}') WHERE {named}")  # noqa: S608
    op.execute(f"PRAGMA schema_version = {version + 1}")
    op.execute("PRAGMA writable_schema = OFF")
    now = connection.scalar(sa.text(f"SELECT sql FROM sqlite_master WHERE {named}"))  # noqa: S608
    if after not in now:
        raise RuntimeError(f"the table runs: expected {before!r} in its definition")
