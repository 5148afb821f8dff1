"""Agent replays: groups of whole tasks, and the calls of their runs"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MUST, _MAY = "call_id INTEGER NOT NULL", "call_id INTEGER"


def upgrade() -> None:
    op.add_column("groups", sa.Column("kind", sa.String(length=16), nullable=False, server_default="shadow_call"))
    op.add_column("groups", sa.Column("by_client", sa.Boolean(), nullable=False, server_default=sa.false()))
    _repeats_a_call("may")
    op.create_index("ix_groups_updated_at", "groups", ["updated_at"])
    op.add_column("runs", sa.Column("ending", sa.JSON(), nullable=True))
    op.create_table(
        "run_calls",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("run_pk", _ROW_ID, nullable=False),
        sa.Column("msg_id", sa.String(length=256), nullable=False),
        sa.Column("choices", sa.Integer(), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("latency", sa.Double(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("msg_id"),
    )
    op.create_index("ix_run_calls_run", "run_calls", ["run_pk", "started_at"])
    op.add_column("facade_groups", sa.Column("size", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("facade_groups", "size")
    op.drop_table("run_calls")
    op.execute("DELETE FROM groups WHERE call_id IS NULL")
    op.drop_column("runs", "ending")
    op.drop_index("ix_groups_updated_at", "groups")
    _repeats_a_call("must")
    op.drop_column("groups", "by_client")
    op.drop_column("groups", "kind")


def _repeats_a_call(how: str) -> None:
    """Let a group be without a call, or not.

    SQLite knows no such change. A new table in the place of the old one, as alembic's batch mode makes it, would empty
    `runs`, whose rows go with their groups; so its own procedure for a change that leaves the rows as they are
    (https://www.sqlite.org/lang_altertable.html#otheralter).
    """
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        op.alter_column("groups", "call_id", nullable=how == "may")
        return
    before, after = (_MUST, _MAY) if how == "may" else (_MAY, _MUST)
    named = "type = 'table' AND name = 'groups'"
    version = connection.scalar(sa.text("PRAGMA schema_version"))
    op.execute("PRAGMA writable_schema = ON")
    op.execute(f"UPDATE sqlite_master SET sql = replace(sql, '{before}', '{after}') WHERE {named}")  # noqa: S608
    op.execute(f"PRAGMA schema_version = {version + 1}")
    op.execute("PRAGMA writable_schema = OFF")
    now = connection.scalar(sa.text(f"SELECT sql FROM sqlite_master WHERE {named}"))  # noqa: S608
    if _MAY not in now or (_MUST in now) != (how == "must"):
        raise RuntimeError(f"the table groups: expected {before!r} in its definition")
