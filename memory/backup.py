"""Copies of a memory that is about to be changed, or cannot be read. Nothing is ever lost to a migration."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from sqlalchemy import Connection, text

from memory.schema import Base


def copy_file(path: Path, why: str) -> Path:
    """A copy of a SQLite file beside it, byte for byte, with what its log holds; made once for each content.

    Args:
        path: the database, which need not be readable as one.
        why: a word for the copy's name, such as `corrupt`.

    Raises:
        OSError: it cannot be read, or its folder cannot be written.
    """
    digest = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()[:8]
    copy = path.with_name(f"{path.name}.{why}-{digest}.bak")
    if not copy.exists():
        log = Path(f"{path}-wal")
        if log.exists() and log.stat().st_size:
            shutil.copyfile(log, f"{copy}-wal")
        _whole_or_not(path, copy)
    return copy


def copy_database(path: Path, revision: str) -> Path:
    """A copy of a healthy SQLite database beside it, consistent while others write. Raises OSError, sqlite3.Error."""
    now = datetime.now(timezone.utc)
    copy = path.with_name(f"{path.name}.revision-{revision}-{now:%Y%m%dT%H%M%S}.bak")
    partial = copy.with_name(f"{copy.name}.{os.getpid()}.part")
    try:
        reading = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        with closing(reading) as source, closing(sqlite3.connect(partial)) as target:
            source.backup(target)
        os.replace(partial, copy)
    finally:
        partial.unlink(missing_ok=True)
    return copy


def copy_tables(connection: Connection, revision: str) -> tuple[str, ...]:
    """Copies of our tables in a server's database, in the transaction that `connection` has open; their names."""
    copies = []
    for table in Base.metadata.tables:
        copy = f"{table}_backup_{revision}"
        connection.execute(text(f"DROP TABLE IF EXISTS {copy}"))
        connection.execute(text(f"CREATE TABLE {copy} AS TABLE {table}"))
        copies.append(copy)
    return tuple(copies)


def _whole_or_not(source: Path, copy: Path) -> None:
    partial = copy.with_name(f"{copy.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, partial)
        os.replace(partial, copy)
    finally:
        partial.unlink(missing_ok=True)
