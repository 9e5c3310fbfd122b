from __future__ import annotations

import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from memory.errors import StoreError, StoreMissing
from memory.fingerprint import fingerprint
from memory.recall import blocked_by, recall
from memory.store import Store
from memory.types import Outcome, Record
from tests.unit.memory.records import GEMM, record
from tests.unit.memory.writer import open_together

ROOT = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "on" / "use" / "memory.db"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{file}") as opened:
        yield opened


def test_what_one_run_wrote_the_next_one_reads(store: Store, file: Path) -> None:
    learned = record("tiling", "simd", parameters={"tiling": {"bm": 64, "order": ["i", "k"]}}, lesson="Pack B first")
    (record_id,) = store.add([learned])
    store.close()
    with Store(f"sqlite:///{file}") as second:
        (found,) = second.query()
        assert found == second.get(record_id)
    assert found.record == learned
    assert found.fingerprint == fingerprint("cpp", learned.strategy)
    assert found.created.endswith("+00:00")


def test_a_resumed_run_does_not_write_twice(store: Store) -> None:
    first = [record("a"), record("b")]
    ids = store.add(first)
    again = store.add([*first, record("c")])
    assert again[:2] == ids
    assert len(store.query()) == 3
    assert store.add([record("d"), record("d")])[0] == store.add([record("d")])[0]


@pytest.mark.parametrize(
    "other",
    [record("a", iteration=2), record("a", run="run_2"), record("a", scope=replace(GEMM, shape_class="1e9"))],
)
def test_another_iteration_run_or_scope_is_another_record(store: Store, other: Record) -> None:
    assert len({*store.add([record("a")]), *store.add([other])}) == 2


@pytest.mark.parametrize(
    ("outcome", "effect", "low", "high", "named"),
    [
        ("positive", None, None, None, "effect"),
        ("negative", None, None, None, "effect"),
        ("rejected", 1.0, None, None, "effect"),
        ("rejected", None, 0.9, 1.1, "effect_high"),
        ("positive", 0.9, 0.8, 1.1, "effect"),
        ("positive", 1.5, 1.6, 1.7, "effect_high"),
        ("positive", 1.5, 1.4, None, "effect_high"),
        ("negative", float("nan"), None, None, "effect"),
        ("negative", 0.0, None, None, "effect"),
    ],
)
def test_an_outcome_that_no_measurement_gives_is_refused(
    store: Store, outcome: Outcome, effect: float | None, low: float | None, high: float | None, named: str
) -> None:
    """An environment fault would be remembered as a failed strategy."""
    bad = replace(record("bad"), outcome=outcome, effect=effect, effect_low=low, effect_high=high)
    with pytest.raises(ValueError, match=f"cannot be remembered: field {named}: "):
        store.add([record("good"), bad])
    assert store.query() == ()


def test_compiler_output_and_long_lessons_fit(store: Store) -> None:
    """A run would end on what a compiler printed."""
    noisy = record(outcome="rejected", reason="line 1\n\tline\0 2 \udcff", lesson="word " * 200)
    found = store.get(store.add([noisy])[0])
    assert found is not None
    assert found.record.reason == "line 1 line 2 ?"
    assert found.record.lesson.split() == ["word"] * 59 + ["word…"]


def test_query_keeps_to_what_is_asked(store: Store) -> None:
    other = replace(GEMM, family="softmax", backend="triton", arch="sm_90")
    ids = store.add([record("a", "b"), record("b", outcome="negative"), record("c", scope=other, run="run_2")])

    asked = {
        "all": store.query(),
        "family": store.query(family="softmax"),
        "backend": store.query(backend="cpp"),
        "arch": store.query(arch="sm_90"),
        "outcome": store.query(outcome="negative"),
        "run": store.query(run="run_2"),
        "method": store.query(method="b"),
        "both": store.query(method="b", outcome="positive"),
        "limit": store.query(limit=2),
    }
    got = {name: [ids.index(found.id) for found in records] for name, records in asked.items()}
    assert got == {
        "all": [0, 1, 2],
        "family": [2],
        "backend": [0, 1],
        "arch": [2],
        "outcome": [1],
        "run": [2],
        "method": [0, 1],
        "both": [0],
        "limit": [1, 2],
    }


def test_no_record_of_that_id_is_none(store: Store) -> None:
    assert store.get(1) is None


def test_an_older_spelling_of_a_strategy_is_found_again(store: Store) -> None:
    """Blocked last night, proposed tonight with the number as text."""
    store.add([record(outcome="negative", effect=0.9, parameters={"tiling": {"bm": 64}})])
    told = recall(store.query(), GEMM, now=datetime.now(timezone.utc))
    reworded = record(parameters={"tiling": {"bm": "64.0"}})
    assert blocked_by(told, fingerprint("cpp", reworded.strategy)) is not None


def test_runs_write_and_read_at_once_in_wal(store: Store, file: Path) -> None:
    store.add([record()])
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
        connection.execute("UPDATE roofclimb_schema SET version = 2")


def _make_foreign(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE studies (id INTEGER)")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_damage_header, "file is not a database; restore it from a backup or move it away"),
        (_damage_pages, "restore it from a backup or move it away"),
        (_truncate, "restore it from a backup or move it away"),
        (_make_newer, "has schema version 2 and this Roofclimb knows 1; use the Roofclimb that wrote it"),
        (_make_foreign, "is a database of something else; give another memory.url"),
    ],
)
def test_what_is_not_ours_to_write_is_refused_and_untouched(
    store: Store, file: Path, spoil: Callable[[Path], None], said: str
) -> None:
    """A night's run would destroy what a person could still have rescued."""
    store.add([record(f"m{at}") for at in range(100)])
    store.close()
    spoil(file)
    before = file.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError) as refused:
            Store(f"sqlite:///{file}", create=create)
        assert said in str(refused.value)
        assert str(file) in str(refused.value)
        assert "\n" not in str(refused.value)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


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
def test_a_row_changed_by_hand_is_named(store: Store, file: Path, change: str, named: str) -> None:
    """The next prompt would hold an effect that nothing measured."""
    store.add([record()])
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(change)
    with pytest.raises(StoreError) as refused:
        store.query()
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory.db", "memory.url 'memory.db' is no SQLAlchemy URL; write it like sqlite:///"),
        ("user:secret@host", "memory.url 'host' is no SQLAlchemy URL"),
        ("nosuchdb://user:secret@host/db", "nosuchdb://user:***@host/db cannot be used: "),
        ("sqlite:////proc/none/memory.db", "check that it is reachable and writable"),
        ("sqlite:////proc", "check that it is reachable and writable"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_line_without_the_password(url: str, said: str) -> None:
    with pytest.raises(StoreError) as refused:
        Store(url)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def _writer(file: Path, name: str, batches: int, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.memory.writer", f"sqlite:///{file}", name, str(batches), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_ten_processes_writing_at_once_lose_nothing(file: Path) -> None:
    """Ten runs of one night, the first of which makes the file: nobody knows which is first."""
    writers = [_writer(file, f"run_{at}", batches=10, size=3) for at in range(10)]
    for writer in writers:
        writer.communicate(timeout=100)
    assert [writer.returncode for writer in writers] == [0] * 10
    with Store(f"sqlite:///{file}") as store:
        per_run = Counter(found.record.run for found in store.query())
    assert per_run == {f"run_{at}": 30 for at in range(10)}


def test_first_users_at_the_same_moment_all_get_in(tmp_path: Path) -> None:
    """SQLite does not wait for its locks while a new file becomes WAL: the second of two runs would end at once."""
    context = multiprocessing.get_context("spawn")
    urls = [f"sqlite:///{tmp_path}/{at}.db" for at in range(60)]
    barrier = context.Barrier(4)
    users = [context.Process(target=open_together, args=(barrier, urls)) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join(timeout=100)
    assert [user.exitcode for user in users] == [0] * 4


def test_a_write_that_is_killed_leaves_all_or_nothing(file: Path) -> None:
    """The next night would learn from half an iteration, or find its memory locked or broken."""
    size = 400
    with Store(f"sqlite:///{file}"):
        pass
    for attempt in range(4):
        run = f"run_{attempt}"
        writer = _writer(file, run, batches=1000, size=size)
        assert writer.stdout is not None
        for line in writer.stdout:
            if line == "writing 2\n":
                break
        time.sleep(0.05 * attempt)
        writer.kill()
        writer.communicate(timeout=100)
        assert writer.returncode == -signal.SIGKILL
        with Store(f"sqlite:///{file}") as store:
            per_iteration = Counter(found.record.iteration for found in store.query(run=run))
            assert set(per_iteration.values()) == {size}
            assert per_iteration[1] == size
            store.add([record(run=run, iteration=5000)])
