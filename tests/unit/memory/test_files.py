"""Memories in SQLite files: what is damaged, newer, older or somebody else's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memory.backup import copy_file
from memory.errors import StoreError, StoreMissing
from memory.store import Store
from tests.unit.memory.records import record


def test_runs_write_and_read_at_once_in_wal(sqlite_store: Store, file: Path) -> None:
    sqlite_store.add([record()])
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_changed_working_directory_does_not_move_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store() as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.add([record()])
    assert (tmp_path / ".roofclimb" / "memory.db").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_readers_do_not_make_a_memory(file: Path) -> None:
    """A typing error in the URL would look like a memory that holds nothing."""
    with pytest.raises(StoreMissing, match=r"no strategy memory at sqlite:///.*/memory\.db yet"):
        Store(f"sqlite:///{file}", create=False)
    assert not file.parent.exists()


def _damage_header(file: Path) -> None:
    file.write_bytes(b"not a database at all" + file.read_bytes()[21:])


def _damage_pages(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 4096)
    file.write_bytes(content)


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def _make_newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE roofclimb_revision SET version_num = '0099'")


def _make_foreign(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE studies (id INTEGER)")


@pytest.mark.parametrize(
    ("spoil", "said", "kept"),
    [
        (_damage_header, "file is not a database; restore it from a backup or move it away", "corrupt"),
        (_damage_pages, "restore it from a backup or move it away", "corrupt"),
        (_truncate, "restore it from a backup or move it away", "corrupt"),
        (
            _make_newer,
            "has tables of revision 0099 and this Roofclimb knows 0003; use the Roofclimb that wrote",
            "newer",
        ),
        (_make_foreign, "is a database of something else; give another memory.url", None),
    ],
)
def test_what_is_not_ours_to_write_is_refused_copied_and_untouched(
    sqlite_store: Store, file: Path, spoil: Callable[[Path], None], said: str, kept: str | None
) -> None:
    """A night's run would destroy what a person could still have rescued."""
    sqlite_store.add([record(f"m{at}") for at in range(100)])
    sqlite_store.close()
    spoil(file)
    before = file.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError) as refused:
            Store(f"sqlite:///{file}", create=create)
        assert said in str(refused.value)
        assert str(file) in str(refused.value)
        assert "\n" not in str(refused.value)
    assert file.read_bytes() == before
    copies = [path for path in file.parent.iterdir() if path != file]
    assert len(copies) == (kept is not None)
    for copy in copies:
        assert f"memory.db.{kept}-" in copy.name
        assert f"a copy is kept at {copy}" in str(refused.value)
        assert copy.read_bytes() == before


def test_damage_that_shows_only_in_a_query_is_named_too(sqlite_store: Store, file: Path) -> None:
    """A disk may go bad in the middle of a night."""
    sqlite_store.add([record(f"m{at}") for at in range(200)])
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _damage_pages(file)
    with pytest.raises(StoreError, match=r"restore it from a backup or move it away \(a copy is kept at .*corrupt-"):
        sqlite_store.query()


def test_what_lies_in_the_log_is_copied_with_a_damaged_file(sqlite_store: Store, file: Path) -> None:
    """A killed run's last records are in the log: a copy of the file alone would lose them."""
    sqlite_store.add([record("kept")])
    log = Path(f"{file}-wal").read_bytes()
    copy = copy_file(file, "corrupt")
    assert log
    assert Path(f"{copy}-wal").read_bytes() == log


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE roofclimb_records SET effect_low = 7.0", "field effect_high: the interval [7, 1.52]"),
        ("UPDATE roofclimb_records SET fingerprint = 'ffff'", "field fingerprint"),
        ("UPDATE roofclimb_records SET created = 'yesterday'", "field created"),
        ("UPDATE roofclimb_records SET parameters = '{'", "cannot be used"),
        ("DELETE FROM roofclimb_methods", "field strategy.methods"),
    ],
)
def test_a_row_changed_by_hand_is_named(sqlite_store: Store, file: Path, change: str, named: str) -> None:
    """The next prompt would hold an effect that nothing measured."""
    sqlite_store.add([record()])
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(change)
    with pytest.raises(StoreError) as refused:
        sqlite_store.query()
    assert named in str(refused.value)
