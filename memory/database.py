"""How a memory's database is reached: its URL, its engine, and what its errors mean to a person."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import tenacity
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from memory.errors import StoreError

DEFAULT_URL = "sqlite:///.roofclimb/memory.db"
"""Relative to the working directory."""

BUSY_TIMEOUT_S = 60.0
"""How long a writer waits for the others before it gives up."""

WRITES = "roofclimb_writes"
"""The execution option of a connection that writes: its transactions wait for those of all other writers."""

# One number for all of Roofclimb's writers on a server: "roofclimb" has no meaning to PostgreSQL.
_ADVISORY_LOCK = 0x726F6F66
_SECRETS = ("password", "passfile", "sslpassword")


def parse_url(url: str) -> URL:
    """The URL, with an absolute path for a file and psycopg 3 for PostgreSQL. Raises StoreError for what is no URL."""
    try:
        parsed = make_url(url)
    except SQLAlchemyError as error:
        shown = url.rpartition("@")[2]  # before it there may be a password
        raise StoreError(f"memory.url {shown!r} is no SQLAlchemy URL; write it like {DEFAULT_URL}") from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    path = sqlite_path(parsed)
    # A run may change its working directory; its memory stays where it was.
    return parsed if path is None else parsed.set(database=str(path.absolute()))


def shown(url: URL) -> str:
    """The URL for people and logs: without its password, wherever it stands."""
    hidden = {name: "***" for name in url.query if name in _SECRETS}
    return url.update_query_dict(hidden).render_as_string()


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL; None for a server, an in-memory database or SQLite's own URI form."""
    database = url.database
    if url.get_backend_name() != "sqlite" or not database or database == ":memory:" or database.startswith("file:"):
        return None
    return Path(database)


def make_engine(url: URL) -> Engine:
    """The engine. Writers wait for one another: in SQLite by `BEGIN IMMEDIATE`, on a server by an advisory lock."""
    if url.get_backend_name() != "sqlite":
        # A night is long: a server may have closed what was idle.
        engine = create_engine(url, pool_pre_ping=True)
        if url.get_backend_name() == "postgresql":
            event.listen(engine, "begin", _begin_on_server)
        return engine
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_in_sqlite)
    return engine


def remedy(line: str) -> str:
    """What to do about what a database said."""
    if is_corrupt(line):
        return "restore it from a backup or move it away"
    if "No module named" in line:
        missing = line.rpartition(" ")[2].strip("'")
        return "pip install 'roofclimb[postgresql]'" if missing.startswith("psycopg") else "install that driver"
    if "locked" in line:
        return "another process holds it; end that one or try again"
    return "check that it is reachable and writable, or give another memory.url"


def is_corrupt(line: str) -> bool:
    """Whether SQLite said that the file's content cannot be what it wrote."""
    return "not a database" in line or "malformed" in line


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


@tenacity.retry(
    retry=tenacity.retry_if_exception(_is_locked),
    wait=tenacity.wait_random(0.01, 0.1),
    stop=tenacity.stop_after_delay(BUSY_TIMEOUT_S),
    reraise=True,
)
def use_wal(engine: Engine) -> None:
    """Switch a new file to WAL. SQLite's busy timeout does not cover this step, so a race of first users waits here."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()
    finally:
        connection.close()


def _configure_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver's own transaction control begins too late for reads and never for DDL: `begin` below owns it.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_in_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if _writes(connection) else "BEGIN")


def _begin_on_server(connection: Connection) -> None:
    if _writes(connection):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_TIMEOUT_S:.0f}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
    else:
        # Records and their methods are read by two statements, between which another may forget some.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get(WRITES, False))
