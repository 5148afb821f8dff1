"""A digest of the weights of each version"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0023"


def upgrade() -> None:
    op.add_column("versions", sa.Column("weights", sa.String(64)))


def downgrade() -> None:
    with op.batch_alter_table("versions") as versions:
        versions.drop_column("weights")
