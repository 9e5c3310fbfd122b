"""What memory says about a task nobody has tried today: how often its like has gained."""

from __future__ import annotations

from dataclasses import replace

from memory.odds import success_odds
from tests.unit.memory.records import GEMM, NOW, record, stored

WON, LOST = record(), record(outcome="negative", effect=0.9)
BROKE = record(outcome="rejected")


def test_where_nothing_was_tried_the_odds_are_even_and_the_unrelated_says_nothing() -> None:
    assert success_odds((), GEMM, now=NOW) == 0.5
    elsewhere = record(scope=replace(GEMM, family="sort"), outcome="negative", effect=0.9)
    assert success_odds([stored(1, elsewhere)], GEMM, now=NOW) == 0.5


def test_gains_raise_them_failures_lower_them_and_rejections_are_failures() -> None:
    up, down, broken = (success_odds([stored(1, one, days_ago=0)], GEMM, now=NOW) for one in (WON, LOST, BROKE))
    assert (up, down) == (2 / 3, 1 / 3)
    assert broken == down


def test_what_is_old_or_far_counts_for_less() -> None:
    fresh = success_odds([stored(1, WON, days_ago=0)], GEMM, now=NOW)
    old = success_odds([stored(1, WON, days_ago=90)], GEMM, now=NOW)
    sister = success_odds([stored(1, record(scope=replace(GEMM, family="conv")), days_ago=0)], GEMM, now=NOW)
    assert fresh > old > sister > 0.5


def test_a_clock_set_back_makes_no_record_count_for_more_than_a_fresh_one() -> None:
    assert success_odds([stored(1, WON, days_ago=-400)], GEMM, now=NOW) == 2 / 3
