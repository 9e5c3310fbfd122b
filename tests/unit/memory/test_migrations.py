"""Databases of older versions: what they hold is carried over, or they stay as they are."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text

from memory.database import make_engine, parse_url
from memory.errors import StoreError
from memory.fingerprint import fingerprint
from memory.migrate import HEAD
from memory.schema import REVISION_TABLE, Base
from memory.store import Store
from memory.types import Strategy
from tests.unit.memory.records import record
from tests.unit.memory.writer import open_together

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "memory"


def fill(url: str, file: Path) -> None:
    """Make the database as version 1 wrote it."""
    if url.startswith("sqlite"):
        file.parent.mkdir(parents=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript((DATA / "v1.sqlite.sql").read_text())
        return
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        for statement in (DATA / "v1.postgresql.sql").read_text().split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.fixture
def old(url: str, file: Path) -> str:
    fill(url, file)
    return url


def test_what_version_1_wrote_is_read_and_can_be_added_to(old: str) -> None:
    """A new Roofclimb would begin from nothing."""
    with Store(old) as store:
        found = store.query()
        assert [f.id for f in found] == [1, 2, 3]
        assert found[0].record.strategy.methods == ("memory.tiling_cache", "compute.simd")
        assert found[0].record.lesson == "Tile for L2"
        first = found[0].record
        assert (first.noise, first.together, first.in_company) == (None, False, False)
        assert store.add([record("new")]) == (4,)
        assert store.migrated is not None
        assert f"from revision 0001 to {HEAD}" in store.migrated
    with Store(old) as again:
        assert again.migrated is None
        assert len(again.query()) == 4


def test_shares_of_a_plan_are_told_from_it_where_that_was_not_written_down(old: str) -> None:
    """Else a share that gained goes on to lift the block of the method alone, and one that failed to set it."""
    rest = "'{}', 'positive', 1.5, 1.4, 1.6, 'measured', '{}', ''"
    engine = create_engine(parse_url(old))
    with engine.begin() as connection:
        for number, methods in ((11, ("a",)), (12, ("a", "b")), (13, ("b",))):
            at, mark = "2026-11-30T16:00:00.000000+00:00", fingerprint("cpp", Strategy(methods))
            scope = f"'run_1', 1, 'gemm', 'cpp', 'x86_64', '1e8', '{mark}'"
            connection.exec_driver_sql(
                "INSERT INTO roofclimb_records (id, created, run, iteration, family, backend, arch, shape_class,"
                " fingerprint, parameters, outcome, effect, effect_low, effect_high, reason, versions, lesson)"
                f" VALUES ({number}, '{at}', {scope}, {rest})"
            )
            for place, method in enumerate(methods):
                values = f"({number}, {place}, '{method}')"
                connection.exec_driver_sql(
                    f"INSERT INTO roofclimb_methods (record_id, position, method) VALUES {values}"
                )
    engine.dispose()
    with Store(old) as store:
        assert {f.id: f.record.in_company for f in store.query()} == {
            **dict.fromkeys((1, 2, 3, 12), False),
            **dict.fromkeys((11, 13), True),
        }


def test_reading_an_older_memory_is_enough_to_bring_it_over(old: str) -> None:
    with Store(old, create=False) as store:
        assert len(store.query(outcome="negative")) == 1


def test_a_copy_is_kept_before_anything_changes(old: str, file: Path) -> None:
    Store(old).close()
    if old.startswith("sqlite"):
        (copy,) = file.parent.glob("memory.db.revision-0001-*.bak")
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("SELECT version FROM roofclimb_schema").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM roofclimb_records").fetchone() == (3,)
        return
    engine = create_engine(parse_url(old))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM roofclimb_records_backup_0001")).scalar_one() == 3
        assert connection.execute(text("SELECT count(*) FROM roofclimb_methods_backup_0001")).scalar_one() == 4
    engine.dispose()


def test_old_and_new_databases_have_the_same_tables(url: str, file: Path, tmp_path: Path) -> None:
    """What is carried over and what is made anew would drift apart, and a later migration would break on one."""
    fill(url, file)
    Store(url).close()
    engine = make_engine(parse_url(url))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": False,
                "include_name": lambda name, kind, _parents: kind != "table" or name in Base.metadata.tables,
                "version_table": REVISION_TABLE,
            },
        )
        assert compare_metadata(context, Base.metadata) == []
        columns = {c["name"]: str(c["type"]) for c in inspect(connection).get_columns("roofclimb_records")}
    engine.dispose()
    if url.startswith("sqlite"):
        with Store(f"sqlite:///{tmp_path}/fresh.db"):
            fresh = create_engine(f"sqlite:///{tmp_path}/fresh.db")
            assert {c["name"]: str(c["type"]) for c in inspect(fresh).get_columns("roofclimb_records")} == columns
            fresh.dispose()


def test_ten_runs_that_find_an_old_memory_at_once_carry_it_over_once(old: str, file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(10)
    users = [context.Process(target=open_together, args=(barrier, [old], 60)) for _ in range(10)]
    for user in users:
        user.start()
    for user in users:
        user.join(timeout=100)
    assert [user.exitcode for user in users] == [0] * 10
    with Store(old) as store:
        assert len(store.query()) == 3
    if old.startswith("sqlite"):
        assert len(list(file.parent.glob("*.bak"))) == 1


_KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from memory.store import Store
from memory.types import Strategy
event.listen(Engine, "commit", lambda connection: os.kill(os.getpid(), signal.SIGKILL))
Store(sys.argv[1])
"""


def test_a_migration_that_is_killed_did_not_happen(old: str) -> None:
    """The power goes just before the commit: half a migration would be a memory that no version reads."""
    done = subprocess.run([sys.executable, "-c", _KILLED, old], cwd=ROOT, env=os.environ, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    with Store(old) as store:
        assert store.migrated is not None
        assert len(store.query()) == 3


def test_a_newer_memory_is_refused_and_named(url: str, file: Path) -> None:
    Store(url).close()
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {REVISION_TABLE} SET version_num = '0099'")
    engine.dispose()
    with pytest.raises(StoreError, match=f"has tables of revision 0099 and this Roofclimb knows {HEAD}; use the"):
        Store(url)
    if url.startswith("sqlite"):
        (copy,) = file.parent.glob("*.newer-*.bak")
        with closing(sqlite3.connect(copy)) as kept:
            assert kept.execute("SELECT count(*) FROM roofclimb_records").fetchone() == (0,)
