"""An audit of writes, which the database itself lets nobody change; and whose key gave a feedback"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_TABLES = ("audit", "audit_prunings")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_FUNCTION = """
CREATE OR REPLACE FUNCTION audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'audit' THEN
        IF OLD.at < (SELECT max(before) FROM audit_prunings) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% only grows: % is refused', TG_TABLE_NAME, TG_OP;
END $$
"""


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("key", sa.String(64)),
        sa.Column("tenant", sa.String(64)),
        sa.Column("written", sa.String(64)),
        sa.Column("kind", sa.String(16)),
        sa.Column("refs", sa.JSON(), nullable=False),
        sa.Column("named", sa.Integer(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_key", "audit", ["key", "id"])
    op.create_index("ix_audit_tenant", "audit", ["tenant", "id"])
    op.create_table(
        "audit_prunings",
        sa.Column("before", sa.Float(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
    )
    op.add_column("feedback", sa.Column("key", sa.String(64)))
    op.add_column("feedback", sa.Column("named", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("feedback", sa.Column("counts_as", sa.Float()))
    op.create_index("ix_feedback_key", "feedback", ["key", "created_at"])
    if op.get_bind().dialect.name == "sqlite":
        pruned = "OLD.at < (SELECT max(before) FROM audit_prunings)"
        for table in _TABLES:
            unless = f"WHEN NOT coalesce({pruned}, 0)" if table == "audit" else ""
            for what, condition in (("UPDATE", ""), ("DELETE", unless)):
                op.execute(
                    f"CREATE TRIGGER {table}_refuses_{what.lower()} BEFORE {what} ON {table} {condition} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} only grows: {what} is refused'); END"
                )
        return
    op.execute(_FUNCTION)
    for table in _TABLES:
        called = "EXECUTE FUNCTION audit_only_grows()"
        op.execute(f"CREATE TRIGGER {table}_rows BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW {called}")
        op.execute(f"CREATE TRIGGER {table}_whole BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {called}")


def downgrade() -> None:
    op.drop_index("ix_feedback_key", "feedback")
    for column in ("key", "named", "counts_as"):
        op.drop_column("feedback", column)
    for table in _TABLES:
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION audit_only_grows()")
