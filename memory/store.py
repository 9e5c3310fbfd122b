"""The database of strategy memory: one file (or server) shared by every run, written by many at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from json import JSONDecodeError

from pydantic import ValidationError
from sqlalchemy import Connection, Select, delete, select, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from memory.backup import copy_database, copy_file, copy_tables
from memory.database import DEFAULT_URL as DEFAULT_URL
from memory.database import WRITES, is_corrupt, make_engine, parse_url, remedy, shown, sqlite_path, use_wal
from memory.errors import StoreError, StoreMissing
from memory.migrate import HEAD, ForeignDatabase, revision_of, upgrade
from memory.schema import MethodRow, RecordRow, entry_of_row, row_of
from memory.scope import related
from memory.types import Outcome, Record, Scope, StoredRecord
from memory.wire import Entry, entry_of, first_error

_IDS_AT_ONCE = 500


class Store:
    """Strategy memory at a SQLAlchemy URL; SQLite files are made on first use, with their folder.

    SQLite runs in WAL mode: readers never wait, writers wait for one another (`BEGIN IMMEDIATE`, so that no write can
    fail half way on a lock); on PostgreSQL an advisory lock does the same. Every `add` is one transaction: all of it is
    there or none of it, whatever is killed. Opening brings older tables to this version's, behind the same lock and
    after a copy; a newer or corrupt memory is copied, named and left as it is.
    """

    def __init__(self, url: str = DEFAULT_URL, *, create: bool = True) -> None:
        """Open the memory.

        Args:
            url: any SQLAlchemy URL; `postgresql://` means psycopg 3.
            create: make the memory where there is none; otherwise its absence is an error.

        Raises:
            StoreMissing: there is none and `create` is off.
            StoreError: unreadable URL or missing driver, a file that is corrupt or not ours, newer tables, no
                permission.
        """
        parsed = parse_url(url)
        self.url = shown(parsed)
        self.migrated: str | None = None
        """What opening did to older tables, in one line; None where there was nothing to do."""
        self._path = sqlite_path(parsed)
        with self._guard():
            self._engine = make_engine(parsed)
            self._writer = self._engine.execution_options(**{WRITES: True})
        try:
            self._open(create)
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
        related_to: Scope | None = None,
        limit: int | None = None,
    ) -> tuple[StoredRecord, ...]:
        """The records that match all that is given, oldest id first; `limit` keeps the newest ones.

        `related_to` leaves out families and backends of which nothing can be learned for that scope.

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
        if related_to is not None:
            families, backends = related(related_to)
            wanted = wanted.where(RecordRow.family.in_(families), RecordRow.backend.in_(backends))
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

    def delete(self, record_ids: Sequence[int]) -> int:
        """Forget these records, all in one transaction; how many there were.

        Raises:
            StoreError: the database refused; then all are still there.
        """
        gone = 0
        with self._guard(), self._writer.begin() as connection:
            for start in range(0, len(record_ids), _IDS_AT_ONCE):
                ids = record_ids[start : start + _IDS_AT_ONCE]
                connection.execute(delete(MethodRow).where(MethodRow.record_id.in_(ids)))
                gone += connection.execute(delete(RecordRow).where(RecordRow.id.in_(ids))).rowcount
        return gone

    def _open(self, create: bool) -> None:
        """Look before touching: nothing is changed in a file until it is known to be ours, or empty."""
        if self._path is not None and not self._path.exists():
            if not create:
                raise self._missing()
            with self._guard():
                self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._guard():
            with self._engine.connect() as connection:
                found = self._revision(connection)
            if found == HEAD:
                return
            if found is None and not create:
                raise self._missing()
            if self._path is not None and found is None:
                use_wal(self._engine)
            with self._writer.begin() as connection:
                self._migrate(connection)

    def _migrate(self, connection: Connection) -> None:
        """Bring the tables to `HEAD`; `connection` holds the writers' lock, so another process may have been first."""
        found = self._revision(connection)
        if found == HEAD:
            return
        if found is not None:
            if self._path is not None:
                kept = str(copy_database(self._path, found))
            else:
                kept = " and ".join(copy_tables(connection, found))
            self.migrated = f"strategy memory {self.url} was brought from revision {found} to {HEAD}; before: {kept}"
        upgrade(connection, found)

    def _revision(self, connection: Connection) -> str | None:
        """The tables' revision, None for an empty database. Raises StoreError for one that must not be touched."""
        if self._path is not None:
            verdict = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
            if verdict != "ok":
                raise self._corrupt(f"is corrupt ({verdict})")
        try:
            found = revision_of(connection)
        except ForeignDatabase:
            raise self._refused("is a database of something else", "give another memory.url") from None
        if found is not None and not ("0001" <= found <= HEAD):
            raise self._refused(
                f"has tables of revision {found or 'none'} and this Roofclimb knows {HEAD}",
                f"use the Roofclimb that wrote it or give another memory.url{self._copy('newer')}",
            )
        return found

    def _corrupt(self, problem: str) -> StoreError:
        return self._refused(problem, f"restore it from a backup or move it away{self._copy('corrupt')}")

    def _copy(self, why: str) -> str:
        """What became of the copy that a refused file gets, to end a message."""
        if self._path is None:
            return ""
        try:
            return f" (a copy is kept at {copy_file(self._path, why)})"
        except OSError as error:
            return f" (no copy could be made: {error.strerror or error})"

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
            if self._path is not None and is_corrupt(line):
                raise self._corrupt(f"cannot be used: {line}") from error
            raise self._refused(f"cannot be used: {line}", remedy(line)) from error


def shown_url(url: str) -> str:
    """The URL for people and logs: absolute, without its password. Raises StoreError for what is no URL."""
    return shown(parse_url(url))


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
