from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import psycopg
import pytest

from memory.database import parse_url, remedy, shown
from memory.errors import StoreError
from memory.fingerprint import fingerprint
from memory.recall import blocked_by, recall
from memory.store import Store
from memory.types import Outcome, Record
from tests.unit.memory.postgres import Server
from tests.unit.memory.records import GEMM, record


def test_what_one_run_wrote_the_next_one_reads(store: Store, url: str) -> None:
    learned = record("tiling", "simd", parameters={"tiling": {"bm": 64, "order": ["i", "k"]}}, lesson="Pack B first")
    (record_id,) = store.add([learned])
    store.close()
    with Store(url) as second:
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
        "related": store.query(related_to=replace(GEMM, family="conv", arch="aarch64")),
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
        "related": [0, 1],
    }


def test_no_record_of_that_id_is_none(store: Store) -> None:
    assert store.get(1) is None


def test_an_older_spelling_of_a_strategy_is_found_again(store: Store) -> None:
    """Blocked last night, proposed tonight with the number as text."""
    store.add([record(outcome="negative", effect=0.9, parameters={"tiling": {"bm": 64}})])
    told = recall(store.query(), GEMM, now=datetime.now(timezone.utc))
    reworded = record(parameters={"tiling": {"bm": "64.0"}})
    assert blocked_by(told, fingerprint("cpp", reworded.strategy)) is not None


def test_what_is_forgotten_is_gone_and_nothing_else(store: Store) -> None:
    ids = store.add([record(f"m{at}", "simd") for at in range(1200)])
    assert store.delete(ids[:1100]) == 1100
    assert store.delete(ids[:1100]) == 0
    assert [found.id for found in store.query()] == list(ids[1100:])
    assert store.add([record("m0", "simd")])[0] not in ids[1100:]


def test_what_a_record_rests_on_is_kept_with_it(store: Store) -> None:
    """Pooling and pairs need them, and a person who asks why."""
    measured = replace(record("a", "b"), noise=0.03, base_ms=1.5, ms=1.0, together=True, in_company=True)
    (found,) = (store.get(record_id) for record_id in store.add([measured]))
    assert found is not None
    assert found.record == measured


def test_whatever_a_model_gives_as_a_parameter_can_be_kept_and_found_again(store: Store) -> None:
    """A server refuses NaN and lone surrogates in JSON, and a whole iteration would be lost with them."""
    odd = {"m": {"a": float("nan"), "b": float("-inf"), "c": "x\0y", "d": "\udcff", "e": 10**30, "f": [1, {"g": None}]}}
    learned = record("m", parameters=odd)
    (found,) = (store.get(record_id) for record_id in store.add([learned]))
    assert found is not None
    assert found.fingerprint == fingerprint("cpp", learned.strategy)
    assert fingerprint("cpp", found.record.strategy) == found.fingerprint


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


def test_a_password_is_never_shown_wherever_it_stands() -> None:
    url = parse_url("postgresql://user:secret@host/db?password=secret&sslmode=require")
    assert url.drivername == "postgresql+psycopg"
    assert "secret" not in shown(url)
    assert "sslmode=require" in shown(url)


@pytest.mark.parametrize(
    ("line", "what_to_do"),
    [
        ("No module named 'psycopg'", "pip install 'roofclimb[postgresql]'"),
        ("No module named 'MySQLdb'", "install that driver"),
        ("database is locked", "another process holds it"),
        ("database disk image is malformed", "restore it from a backup"),
    ],
)
def test_what_a_database_says_comes_with_what_to_do(line: str, what_to_do: str) -> None:
    assert remedy(line).startswith(what_to_do)


def test_a_server_that_dropped_an_idle_connection_is_asked_again(postgres: Server) -> None:
    """A night is long: the second iteration would find its memory gone."""
    url = postgres.new_database()
    with Store(url) as store, Store(url) as other:
        store.add([record("a")])
        other.query()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert len(other.query()) == 1
        store.add([record("b")])
        assert len(other.query()) == 2
