"""The database of strategy memory: one file (or server) shared by every run, written by many at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from json import JSONDecodeError
from pathlib import Path

import tenacity
from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Select, create_engine, event, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from memory.errors import StoreError, StoreMissing
from memory.schema import SCHEMA_VERSION, Base, MethodRow, RecordRow, SchemaRow, entry_of_row, row_of
from memory.types import Outcome, Record, StoredRecord
from memory.wire import Entry, entry_of, first_error

DEFAULT_URL = "sqlite:///.roofclimb/memory.db"
"""Relative to the working directory."""

BUSY_TIMEOUT_S = 60.0
"""How long a writer waits for the others before it gives up."""

_WRITES = "roofclimb_writes"


class Store:
    """Strategy memory at a SQLAlchemy URL; SQLite files are made on first use, with their folder.

    SQLite runs in WAL mode: readers never wait, writers wait for one another (`BEGIN IMMEDIATE`, so that no write can
    fail half way on a lock). Every `add` is one transaction: all of it is there or none of it, whatever is killed.
    """

    def __init__(self, url: str = DEFAULT_URL, *, create: bool = True) -> None:
        """Open the memory.

        Args:
            url: any SQLAlchemy URL.
            create: make the memory where there is none; otherwise its absence is an error.

        Raises:
            StoreMissing: there is none and `create` is off.
            StoreError: unreadable URL or missing driver, a file that is corrupt or not ours, a newer schema, no
                permission.
        """
        parsed = _parse(url)
        self.url = parsed.render_as_string()
        with self._guard():
            self._engine = _engine(parsed)
            self._writer = self._engine.execution_options(**{_WRITES: True})
        try:
            self._open(parsed, create)
        except BaseException:
            self.close()
            raise

    def add(self, records: Sequence[Record]) -> tuple[int, ...]:
        """Write the records in one transaction and return their ids in order.

        A record that is there already (same run, iteration, fingerprint and scope) keeps its first content and gives
        its old id, so a resumed run may write what it wrote before.

        Raises:
            ValueError: a record that no outcome can have (positive without effect, rejected with one …).
            StoreError: the database refused.
        """
        now = datetime.now(timezone.utc)
        return self.restore([entry_of(record, now) for record in records])[0]

    def restore(self, entries: Sequence[Entry]) -> tuple[tuple[int, ...], int]:
        """Write checked entries with the times they carry, in one transaction: their ids, and how many were new.

        Raises:
            StoreError: the database refused; then none was written.
        """
        new = 0
        ids: list[int] = []
        with self._guard(), Session(self._writer) as session, session.begin():
            for entry in entries:
                record_id = session.scalar(_same(entry))
                if record_id is None:
                    record_id, inserted = _insert(session, entry)
                    new += inserted
                ids.append(record_id)
        return tuple(ids), new

    def query(
        self,
        *,
        family: str | None = None,
        backend: str | None = None,
        arch: str | None = None,
        outcome: Outcome | None = None,
        run: str | None = None,
        method: str | None = None,
        limit: int | None = None,
    ) -> tuple[StoredRecord, ...]:
        """The records that match all that is given, oldest id first; `limit` keeps the newest ones.

        Raises:
            StoreError: the database refused, or holds a row that was changed by hand and makes no sense.
        """
        wanted: Select[RecordRow] = select(RecordRow).order_by(RecordRow.id.desc())
        for column, value in (
            (RecordRow.family, family),
            (RecordRow.backend, backend),
            (RecordRow.arch, arch),
            (RecordRow.outcome, outcome),
            (RecordRow.run, run),
        ):
            if value is not None:
                wanted = wanted.where(column == value)
        if method is not None:
            wanted = wanted.where(RecordRow.methods.any(MethodRow.method == method))
        with self._guard(), Session(self._engine) as session:
            rows = session.scalars(wanted.limit(limit)).all()
            return tuple(self._stored(row) for row in reversed(rows))

    def get(self, record_id: int) -> StoredRecord | None:
        """The record of that id, None where there is none.

        Raises:
            StoreError: as `query`.
        """
        with self._guard(), Session(self._engine) as session:
            row = session.get(RecordRow, record_id)
            return None if row is None else self._stored(row)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _open(self, url: URL, create: bool) -> None:
        """Look before touching: nothing is changed in a file until it is known to be ours, or empty."""
        path = _sqlite_path(url)
        if path is not None and not path.exists():
            if not create:
                raise self._missing()
            with self._guard():
                path.parent.mkdir(parents=True, exist_ok=True)
        with self._guard():
            with self._engine.connect() as connection:
                found = self._version(connection)
            if found is None:
                if not create:
                    raise self._missing()
                self._create()

    def _create(self) -> None:
        if self._engine.dialect.name == "sqlite":
            _use_wal(self._engine)
        with self._writer.begin() as connection:
            if self._version(connection) is None:  # another process may have been first
                Base.metadata.create_all(connection)
                connection.execute(insert(SchemaRow).values(id=1, version=SCHEMA_VERSION))

    def _version(self, connection: Connection) -> int | None:
        """The schema version, None for an empty database. Raises StoreError for one that must not be touched."""
        if connection.dialect.name == "sqlite":
            verdict = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
            if verdict != "ok":
                raise self._refused(f"is corrupt ({verdict})", "restore it from a backup or move it away")
        tables = set(inspect(connection).get_table_names())
        if SchemaRow.__tablename__ not in tables:
            foreign = tables if connection.dialect.name == "sqlite" else tables & set(Base.metadata.tables)
            if foreign:
                raise self._refused("is a database of something else", "give another memory.url")
            return None
        version = connection.execute(select(SchemaRow.version)).scalar_one_or_none()
        if version != SCHEMA_VERSION:
            raise self._refused(
                f"has schema version {version} and this Roofclimb knows {SCHEMA_VERSION}",
                "use the Roofclimb that wrote it or give another memory.url",
            )
        return version

    def _stored(self, row: RecordRow) -> StoredRecord:
        try:
            return entry_of_row(row).stored(row.id)
        except ValueError as error:
            problem = first_error(error.errors()) if isinstance(error, ValidationError) else f"field created: {error}"
            raise self._refused(f"holds a record {row.id} that was changed by hand: {problem}", "correct it") from error

    def _missing(self) -> StoreMissing:
        return StoreMissing(f"no strategy memory at {self.url} yet; a run or `memory import` makes one")

    def _refused(self, problem: str, remedy: str) -> StoreError:
        one_line = " ".join(problem.split())
        return StoreError(f"strategy memory {self.url} {one_line}; {remedy}")

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """What the database says becomes one line that names the memory."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError, ImportError, JSONDecodeError) as error:
            cause = getattr(error, "orig", None) or error
            line = str(cause) or type(cause).__name__
            raise self._refused(f"cannot be used: {line}", _remedy(line)) from error


def shown_url(url: str) -> str:
    """The URL for people and logs: absolute, without its password. Raises StoreError for what is no URL."""
    return _parse(url).render_as_string()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except SQLAlchemyError as error:
        shown = url.rpartition("@")[2]  # before it there may be a password
        raise StoreError(f"memory.url {shown!r} is no SQLAlchemy URL; write it like {DEFAULT_URL}") from error
    path = _sqlite_path(parsed)
    # A run may change its working directory; its memory stays where it was.
    return parsed if path is None else parsed.set(database=str(path.absolute()))


def _sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL; None for a server, an in-memory database or SQLite's own URI form."""
    database = url.database
    if url.get_backend_name() != "sqlite" or not database or database == ":memory:" or database.startswith("file:"):
        return None
    return Path(database)


def _remedy(line: str) -> str:
    if "not a database" in line or "malformed" in line:
        return "restore it from a backup or move it away"
    if "No module named" in line:
        return "install that driver"
    if "locked" in line:
        return "another process holds it; end that one or try again"
    return "check that it is reachable and writable, or give another memory.url"


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def configure(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        # The driver's own transaction control begins too late for reads and never for DDL: `begin` below owns it.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


@tenacity.retry(
    retry=tenacity.retry_if_exception(_is_locked),
    wait=tenacity.wait_random(0.01, 0.1),
    stop=tenacity.stop_after_delay(BUSY_TIMEOUT_S),
    reraise=True,
)
def _use_wal(engine: Engine) -> None:
    """Switch a new file to WAL. SQLite's busy timeout does not cover this step, so a race of first users waits here."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()
    finally:
        connection.close()


def _same(entry: Entry) -> Select[int]:
    scope = entry.scope
    return select(RecordRow.id).where(
        RecordRow.run == entry.run,
        RecordRow.iteration == entry.iteration,
        RecordRow.fingerprint == entry.fingerprint,
        RecordRow.family == scope.family,
        RecordRow.backend == scope.backend,
        RecordRow.arch == scope.arch,
        RecordRow.shape_class == scope.shape_class,
    )


def _insert(session: Session, entry: Entry) -> tuple[int, bool]:
    """The id and whether it is new: on a server another run may insert the same record after we looked."""
    row = row_of(entry)
    try:
        with session.begin_nested():
            session.add(row)
            session.flush()
    except IntegrityError:
        record_id = session.scalar(_same(entry))
        if record_id is None:
            raise
        return record_id, False
    return row.id, True
