"""The revisions of the store's schema, which are alembic's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import alembic.command
import alembic.config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from slipstream import __version__
from slipstream.errors import ConfigError, StoreAway


def newest() -> str:
    """Return the revision that this release brings a store to."""
    head = _scripts().get_current_head()
    assert head is not None, "there are migrations"
    return head


def known(revision: str) -> bool:
    """Return whether this release knows how a store of this revision is made."""
    return revision in {script.revision for script in _scripts().walk_revisions()}


def current(connection: Connection) -> str | None:
    """Return the revision of a store; None for one without tables.

    Raises:
        StoreAway: a later release has changed it.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and not known(found):
        raise StoreAway(
            f"store.url: a later release of slipstream has changed its tables: expected a schema of revision "
            f"{newest()} at most, which slipstream {__version__} knows; found {found}. Start that release again, or "
            "have this one restore a backup from before the upgrade into an empty store (slipstream restore FILE)"
        )
    return found


def check_newest(connection: Connection) -> None:
    """Make sure that a store can be read by this release as it is.

    Raises:
        ConfigError: it has no tables, or those of an earlier release.
        StoreAway: a later release has changed it.
    """
    found = current(connection)
    if found is None:
        raise ConfigError("store.url: expected a store with tables, found an empty database")
    if found != newest():
        raise ConfigError(
            f"store.url: expected a store of this release, with a schema of revision {newest()}, found {found}; a "
            "sidecar of this release brings it there when it starts"
        )


def upgrade(connection: Connection, to: str = "head") -> None:
    """Bring a store to a revision, in the transaction of the connection.

    Raises:
        StoreAway: a later release has changed it.
    """
    if current(connection) == newest():
        return  # as at most starts
    config = _config()
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, to)


@cache
def _scripts() -> ScriptDirectory:
    """The migrations, which are read from their files once in a process."""
    return ScriptDirectory.from_config(_config())


def _config() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config
