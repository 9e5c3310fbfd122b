"""The tables' revisions: which one a database has, and how it is brought to this Roofclimb's."""

from __future__ import annotations

import threading

from sqlalchemy import Connection, inspect, text

from memory.schema import FIRST_SCHEMA_TABLE, REVISION_TABLE, Base

HEAD = "0003"
"""The revision that this Roofclimb reads and writes."""

_ALEMBIC = threading.Lock()


class ForeignDatabase(Exception):
    """The database holds tables, and none of them says that it is a strategy memory."""


def revision_of(connection: Connection) -> str | None:
    """The revision of the tables, None for a database with none of ours.

    Raises:
        ForeignDatabase: a SQLite file of something else, or a server that holds tables by our names.
    """
    tables = set(inspect(connection).get_table_names())
    if REVISION_TABLE in tables:
        return connection.execute(text(f"SELECT version_num FROM {REVISION_TABLE}")).scalar_one_or_none() or ""
    if FIRST_SCHEMA_TABLE in tables:
        # Before there were revisions, a row said so.
        version = connection.execute(text(f"SELECT version FROM {FIRST_SCHEMA_TABLE}")).scalar_one_or_none()
        return "" if version is None else f"{version:04}"
    if tables if connection.dialect.name == "sqlite" else tables & set(Base.metadata.tables):
        raise ForeignDatabase
    return None


def upgrade(connection: Connection, found: str | None) -> None:
    """Bring the tables from the revision `found` to `HEAD`, in the transaction that `connection` has open."""
    # Only who makes or changes tables waits for this import.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "memory:migrations")
    config.attributes["connection"] = connection
    with _ALEMBIC:  # its context is global
        if found is not None and REVISION_TABLE not in inspect(connection).get_table_names():
            command.stamp(config, found)
        command.upgrade(config, HEAD)
