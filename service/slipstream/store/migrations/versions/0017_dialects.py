"""The dialect of a call, its original where that is not the chat form, and why the policy cannot be asked it"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("calls", sa.Column("dialect", sa.String(16), nullable=False, server_default="chat"))
    op.add_column("calls", sa.Column("problem", sa.String(32)))
    op.add_column("calls", sa.Column("original_request", sa.LargeBinary()))
    op.add_column("calls", sa.Column("original_answer", sa.LargeBinary()))
    op.add_column("run_calls", sa.Column("instructed", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("run_calls", "instructed")
    for column in ("original_answer", "original_request", "problem", "dialect"):
        op.drop_column("calls", column)
