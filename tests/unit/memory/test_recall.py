from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from memory.fingerprint import fingerprint
from memory.recall import HALF_LIFE_DAYS, blocked_by, evidence, recall
from memory.store import Store
from memory.types import Recall, Record, Scope, StoredRecord, Strategy
from tests.unit.memory.records import GEMM, NOW, record, stored

NEXT_DECADE = replace(GEMM, shape_class="1e9")
SISTER = replace(GEMM, family="conv")


def here(*records: StoredRecord, limit: int = 8) -> Recall:
    return recall(records, GEMM, now=NOW, limit=limit)


def test_a_failure_blocks_exactly_itself() -> None:
    """The model would propose last night's failure again, or be kept from its harmless neighbours."""
    told = here(stored(7, record("tiling", "simd", outcome="negative", effect=0.97)))
    advice = blocked_by(told, fingerprint("cpp", Strategy(("simd", "tiling"))))
    assert advice is not None
    assert advice.record_id == 7
    assert advice.effect == 0.97
    assert advice.methods == ("tiling", "simd")
    assert blocked_by(told, fingerprint("cpp", Strategy(("simd",)))) is None
    assert blocked_by(told, fingerprint("cpp", Strategy(("simd", "tiling"), {"tiling": {"bm": 64}}))) is None
    assert told.preferred == ()


def test_a_method_alone_is_blocked_by_its_own_record() -> None:
    told = here(stored(1, record("simd", outcome="negative", effect=1.0)))
    assert blocked_by(told, fingerprint("cpp", Strategy(("simd",)))) is not None


def test_rejected_blocks_with_its_reason() -> None:
    told = here(stored(1, record(outcome="rejected", reason="build: unknown type __m512")))
    assert [advice.effect for advice in told.blocked] == [None]
    assert told.blocked[0].evidence.startswith("rejected: build: unknown type __m512 on gemm/cpp/x86_64/1e8, run_")


def test_a_failure_elsewhere_does_not_block() -> None:
    for scope in (NEXT_DECADE, SISTER, replace(GEMM, arch="aarch64")):
        assert here(stored(1, record(scope=scope, outcome="negative", effect=0.9))).blocked == ()


def test_a_stale_failure_may_be_tried_again_but_is_not_preferred() -> None:
    """What a new compiler would make fast stays forbidden for ever."""
    old = record(outcome="negative", effect=0.9)
    assert len(here(stored(1, old, days_ago=HALF_LIFE_DAYS - 1)).blocked) == 1
    told = here(stored(1, old, days_ago=HALF_LIFE_DAYS + 1))
    assert told.blocked == ()
    assert told.preferred == ()


def test_the_latest_evidence_of_a_scope_speaks() -> None:
    worked, failed = record(run="run_1"), record(run="run_2", outcome="negative", effect=0.9)
    later_success = here(stored(1, failed, days_ago=9), stored(2, worked, days_ago=3))
    assert later_success.blocked == ()
    assert [advice.record_id for advice in later_success.preferred] == [2]
    later_failure = here(stored(1, failed, days_ago=3), stored(2, worked, days_ago=9))
    assert [advice.record_id for advice in later_failure.blocked] == [1]
    assert later_failure.preferred == ()


def test_records_of_one_moment_go_by_id() -> None:
    """A whole iteration is written at once."""
    told = here(stored(2, record(run="run_2")), stored(1, record(outcome="negative", effect=0.9)))
    assert told.blocked == ()


def test_a_later_success_in_a_near_scope_unblocks() -> None:
    failed = stored(1, record(outcome="negative", effect=0.9), days_ago=9)
    told = here(failed, stored(2, record(scope=NEXT_DECADE), days_ago=3))
    assert told.blocked == ()
    assert [advice.record_id for advice in told.preferred] == [2]
    assert len(here(failed, stored(2, record(scope=NEXT_DECADE), days_ago=20)).blocked) == 1
    assert len(here(failed, stored(2, record(scope=SISTER), days_ago=3)).blocked) == 1


def in_company(*args: str, **kwargs: Any) -> Record:
    return replace(record(*args, **kwargs), in_company=True)


def test_a_plan_that_failed_stays_blocked_whatever_its_method_did_in_other_company(sqlite_store: Store) -> None:
    """The stencil without branches is slower alone and faster beside another method: alone it was tried every night."""
    alone = record("m", outcome="negative", effect=0.9)
    beside = [in_company("m", run="run_2"), record("m", "n", run="run_2"), in_company("m", iteration=2)]
    sqlite_store.add([alone, *beside])
    told = recall(sqlite_store.query(), GEMM, now=datetime.now(timezone.utc))
    assert [advice.methods for advice in told.blocked] == [("m",)]
    assert [advice.methods for advice in told.preferred] == [("m", "n")]
    sqlite_store.add([record("m", run="run_3")])
    later = recall(sqlite_store.query(), GEMM, now=datetime.now(timezone.utc))
    assert later.blocked == ()
    assert ("m",) in [advice.methods for advice in later.preferred]


def test_a_method_known_from_larger_plans_alone_goes_by_them() -> None:
    failed = stored(1, in_company("m", outcome="negative", effect=0.9), days_ago=9)
    assert [advice.record_id for advice in here(failed).blocked] == [1]
    assert here(failed, stored(2, in_company("m", run="run_2"), days_ago=3)).blocked == ()
    assert here(failed, stored(2, in_company("m", scope=NEXT_DECADE), days_ago=3)).blocked == ()


def test_a_near_scope_lifts_the_block_of_a_plan_only_by_that_plan() -> None:
    failed = stored(1, record("m", outcome="negative", effect=0.9), days_ago=9)
    assert len(here(failed, stored(2, in_company("m", scope=NEXT_DECADE), days_ago=3)).blocked) == 1
    worked = stored(2, record("m", scope=NEXT_DECADE), days_ago=3)
    assert here(failed, worked).blocked == ()
    assert here(failed, worked, stored(3, in_company("m", scope=NEXT_DECADE, iteration=2), days_ago=2)).blocked == ()


def test_a_plans_own_failure_too_old_to_block_no_longer_outweighs_larger_plans() -> None:
    stale = stored(1, record("m", outcome="negative", effect=0.9), days_ago=HALF_LIFE_DAYS + 1)
    told = here(stale, stored(2, in_company("m", run="run_2")))
    assert [advice.record_id for advice in told.preferred] == [2]


def test_a_plan_that_failed_elsewhere_lifts_no_block_though_its_method_did_well_there_in_company() -> None:
    """There its own failure is too old a compiler's to speak; it is no success for that."""
    failed = stored(1, record("m", outcome="negative", effect=0.9), days_ago=60)
    elsewhere = record("m", scope=NEXT_DECADE, outcome="negative", effect=0.9, run="run_2")
    stale = stored(2, replace(elsewhere, versions={"g++": "9.1.0"}), days_ago=50)
    beside = stored(3, in_company("m", scope=NEXT_DECADE, run="run_3"), days_ago=45)
    told = recall([failed, stale, beside], GEMM, now=NOW, limit=8, versions={"g++": "12.2.0"})
    assert [advice.record_id for advice in told.blocked] == [1]


def test_preferred_by_measured_effect_on_the_nearest_scope() -> None:
    told = here(
        stored(1, record("a", effect=1.2)),
        stored(2, record("b", effect=3.0)),
        stored(3, record("c", effect=3.0, scope=SISTER)),
        stored(4, record("d", effect=3.0, scope=NEXT_DECADE)),
        stored(5, record("e", effect=9.0, scope=Scope("sort", "cpp", "x86_64", "1e8"))),
    )
    assert [advice.methods for advice in told.preferred] == [("b",), ("d",), ("a",), ("c",)]


def test_a_strategy_is_offered_once_with_its_nearest_effect() -> None:
    """It would be offered for a gain that another shape had."""
    told = here(
        stored(1, record(effect=5.0, scope=NEXT_DECADE, run="run_1")), stored(2, record(effect=1.1, run="run_2"))
    )
    assert [advice.effect for advice in told.preferred] == [1.1]


def test_what_failed_nearby_is_not_preferred_for_a_success_far_away() -> None:
    told = here(
        stored(1, record(scope=SISTER, effect=5.0), days_ago=3),
        stored(2, record(scope=NEXT_DECADE, outcome="negative", effect=0.8), days_ago=9),
    )
    assert told.blocked == told.preferred == ()


def test_old_successes_rank_below_equal_new_ones() -> None:
    told = here(stored(1, record("old", effect=1.5), days_ago=200), stored(2, record("new", effect=1.4)))
    assert [advice.methods for advice in told.preferred] == [("new",), ("old",)]


def test_limit_cuts_offers_and_lessons_but_never_blocks() -> None:
    """The validator would let a failure through because the prompt was short."""
    failures = [stored(at, record(f"f{at}", outcome="negative", effect=0.9, lesson=f"lesson {at}")) for at in range(9)]
    successes = [stored(at, record(f"s{at}")) for at in range(9, 18)]
    told = here(*failures, *successes, limit=2)
    assert len(told.blocked) == 9
    assert len(told.preferred) == 2
    assert len(told.lessons) == 2


def test_lessons_come_once_nearest_and_newest_first() -> None:
    told = here(
        stored(1, record("a", scope=SISTER, lesson="From a sister."), days_ago=1),
        stored(2, record("b", lesson="Pack B  first"), days_ago=5),
        stored(3, record("c", lesson="pack b first."), days_ago=9),
        stored(4, record("d", lesson="Align the panel", outcome="rejected"), days_ago=2),
        stored(5, record("e", lesson="")),
        stored(6, record("f", lesson="Unrelated", scope=replace(GEMM, family="sort"))),
    )
    assert told.lessons == ("Align the panel", "Pack B first", "From a sister.")


def test_both_levels_may_hold_the_same_record() -> None:
    same = stored(1, record(lesson="once"))
    assert here(same, same) == here(same)


def test_evidence_says_how_much_where_and_when() -> None:
    line = evidence(record(outcome="negative", effect=0.97, run="run_20260601_010203", iteration=2))
    assert line == "0.97x [0.95, 0.99] on gemm/cpp/x86_64/1e8, run_20260601_010203, iteration 2"


def test_nothing_known_is_an_empty_recall() -> None:
    assert here() == Recall()


def runs(*outcomes: float, methods: tuple[str, ...] = ("m",)) -> list[StoredRecord]:
    """One run for each effect, the oldest first: a gain over 1.02 worked."""
    return [
        stored(
            at,
            record(*methods, outcome="positive" if effect > 1.02 else "negative", effect=effect, run=f"run_{at}"),
            days_ago=20 - at,
        )
        for at, effect in enumerate(outcomes)
    ]


def test_a_clear_majority_outweighs_one_bad_night() -> None:
    """One noisy comparison would forbid what four nights had shown."""
    told = here(*runs(1.5, 1.51, 1.49, 1.5, 1.0))
    assert told.blocked == ()
    (advice,) = told.preferred
    assert (advice.runs, advice.agree) == (5, 4)
    assert "4 of 5 runs agree" in advice.evidence


@pytest.mark.parametrize("effects", [(1.5, 1.0), (1.5, 1.5, 1.0, 1.0), (1.06, 1.05, 0.7)])
def test_without_one_the_newest_run_decides(effects: tuple[float, ...]) -> None:
    told = here(*runs(*effects))
    assert len(told.blocked) == 1
    assert told.preferred == ()


def test_a_success_that_pools_to_no_gain_is_neither_offered_nor_blocked() -> None:
    told = here(*runs(0.6, 0.6, 0.6, 1.1))
    assert told.blocked == told.preferred == ()


def test_the_effect_offered_is_that_of_all_runs() -> None:
    """The best night of ten would be promised again."""
    (advice,) = here(*runs(1.2, 1.2, 2.0)).preferred
    assert advice.effect is not None
    assert 1.2 < advice.effect < 1.6


def test_the_iterations_of_one_run_are_one_voice() -> None:
    """A night that fails three times would outvote three nights."""
    again = [
        stored(9, record("m", outcome="negative", effect=1.0, run="run_9", iteration=1), days_ago=3),
        stored(10, record("m", outcome="negative", effect=1.0, run="run_9", iteration=2), days_ago=2),
    ]
    told = here(*runs(1.5, 1.5, 1.5), *again)
    assert told.blocked == ()
    assert told.preferred[0].runs == 4


def test_a_success_in_a_nearer_scope_counts_before_a_failure_further_off() -> None:
    further = replace(GEMM, shape_class="1e6")
    told = here(
        stored(1, record("m", scope=NEXT_DECADE), days_ago=9),
        stored(2, record("m", scope=further, outcome="negative", effect=0.9), days_ago=1),
    )
    assert [advice.record_id for advice in told.preferred] == [1]


def test_what_works_only_together_is_offered_as_a_pair() -> None:
    (advice,) = here(stored(1, replace(record("a", "b", effect=1.5), together=True))).preferred
    assert (advice.methods, advice.together) == (("a", "b"), True)


def test_evidence_too_old_or_far_to_mean_anything_is_not_told() -> None:
    told = here(stored(1, record("m", lesson="ancient"), days_ago=600))
    assert told == Recall()


def test_a_lesson_that_a_later_one_of_the_strategy_superseded_is_not_told() -> None:
    told = here(
        stored(1, record("m", outcome="negative", effect=0.9, lesson="never again", run="r1"), days_ago=9),
        stored(2, record("m", lesson="works with -O3", run="r2"), days_ago=1),
    )
    assert told.lessons == ("works with -O3",)


def test_a_long_reason_leaves_room_for_where_and_when() -> None:
    line = evidence(record(outcome="rejected", reason="word " * 200))
    assert "word… on gemm/cpp/x86_64/1e8, run_20260601_010203, iteration 1" in line
