"""Alembic's entry: run by `Database.open` on its own connection."""

from alembic import context

from slipstream.store.tables.base import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
