from __future__ import annotations

from dataclasses import replace

import pytest

from memory.priors import FAILS_AT_FIRST
from memory.recall import recall
from memory.types import Prior, StoredRecord
from tests.unit.memory.records import GEMM, NOW, record, stored


def priors(*records: StoredRecord) -> dict[str, Prior]:
    return {p.method: p for p in recall(records, GEMM, now=NOW).priors}


def test_a_method_is_expected_to_do_what_it_did_drawn_towards_nothing() -> None:
    once = priors(stored(1, record("m", effect=2.0), days_ago=0))["m"]
    often = priors(*(stored(at, record("m", effect=2.0, run=f"r{at}"), days_ago=0) for at in range(9)))["m"]
    assert once.effect == pytest.approx(2.0**0.5)
    assert often.effect == pytest.approx(2.0**0.9)
    assert (once.tried, once.failed) == (1, 0)


def test_its_parameters_do_not_matter_but_where_it_was_tried_does() -> None:
    """A first proposal in a new shape would know nothing of the method."""
    far = replace(GEMM, shape_class="1e4")
    tile64 = record("m", effect=2.0, parameters={"m": {"tile": 64}}, run="a")
    tile128 = record("m", effect=2.0, parameters={"m": {"tile": 128}}, run="b", scope=far)
    both = priors(stored(1, tile64, days_ago=0), stored(2, tile128, days_ago=0))["m"]
    assert both.tried == 2
    assert both.weight == pytest.approx(1 + 2**-2)


def test_the_chance_of_failing_grows_with_failures_and_shrinks_with_successes() -> None:
    failed = priors(*(stored(at, record("m", outcome="rejected", run=f"r{at}")) for at in range(4)))["m"]
    worked = priors(*(stored(at, record("m", run=f"r{at}")) for at in range(4)))["m"]
    assert failed.fails > 0.7
    assert worked.fails < FAILS_AT_FIRST < failed.fails
    assert failed.effect is None


def test_a_plan_that_failed_is_blamed_on_each_method_in_part() -> None:
    found = priors(stored(1, record("a", "b", outcome="rejected"), days_ago=0))
    assert found["a"].fails == found["b"].fails == pytest.approx((0.5 + 0.5) / 3)


def test_a_plan_adds_nothing_to_what_its_attribution_said() -> None:
    """The plan's whole gain would be ascribed to each of its methods."""
    whole, single = record("a", "b", effect=3.0), record("a", outcome="negative", effect=1.0)
    found = priors(stored(1, whole, days_ago=0), stored(2, single, days_ago=0))
    assert (found["a"].tried, found["b"].tried) == (1, 1)
    assert found["a"].effect == pytest.approx(1.0)
    assert found["b"].effect is None


def test_the_most_promising_comes_first_and_the_forgotten_not_at_all() -> None:
    told = recall(
        [
            stored(1, record("small", effect=1.1)),
            stored(2, record("large", effect=3.0)),
            stored(3, record("ancient", effect=9.0), days_ago=900),
            stored(4, record("never", outcome="rejected")),
        ],
        GEMM,
        now=NOW,
    )
    assert [p.method for p in told.priors] == ["large", "small", "never"]
