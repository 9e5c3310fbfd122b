from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from memory.pooling import pool
from memory.types import Record
from tests.unit.memory.records import record


def measured(effect: float, half: float | None = 0.02) -> Record:
    low, high = (None, None) if half is None else (effect * math.exp(-half), effect * math.exp(half))
    return replace(record(outcome="negative", effect=effect), effect_low=low, effect_high=high)


def test_one_run_is_itself() -> None:
    found = pool([(measured(1.5), 1.0)])
    assert found is not None
    assert found.effect == pytest.approx(1.5)
    assert found.count == 1
    assert found.low == pytest.approx(1.5 * math.exp(-0.02))
    assert found.high == pytest.approx(1.5 * math.exp(0.02))


def test_a_lopsided_interval_of_one_run_stays_as_it_was_measured() -> None:
    found = pool([(replace(record(), effect=8.5, effect_low=3.2, effect_high=8.7), 1.0)])
    assert found is not None
    assert (found.low, found.high) == (3.2, 8.7)


def test_runs_that_agree_make_the_interval_narrower() -> None:
    found = pool([(measured(1.5), 1.0)] * 4)
    assert found is not None
    assert found.low == pytest.approx(1.5 * math.exp(-0.01))


def test_runs_that_disagree_make_it_wider_than_either() -> None:
    """Two tight intervals that exclude one another would pool to a third that excludes both."""
    found = pool([(measured(1.5), 1.0), (measured(0.9), 1.0)])
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.effect == pytest.approx(math.sqrt(1.5 * 0.9), rel=1e-3)
    assert found.low < 0.9 * 1.02
    assert found.high > 1.5


def test_a_precise_run_counts_more_and_so_does_a_fresh_one() -> None:
    precise = pool([(measured(1.50, 0.01), 1.0), (measured(1.54, 0.2), 1.0)])
    fresh = pool([(measured(1.50, 0.1), 1.0), (measured(1.54, 0.1), 0.1)])
    assert precise is not None
    assert fresh is not None
    assert precise.effect < 1.501
    assert fresh.effect < 1.505


def test_what_has_no_interval_counts_only_where_nothing_has() -> None:
    imported = measured(3.0, None)
    alone = pool([(imported, 1.0), (measured(3.0, None), 1.0)])
    beside = pool([(imported, 1.0), (measured(1.5), 1.0)])
    assert alone is not None
    assert beside is not None
    assert alone.effect == pytest.approx(3.0)
    assert (alone.low, alone.high) == (None, None)
    assert beside.effect == pytest.approx(1.5)
    assert beside.count == 1


def test_nothing_measured_is_nothing() -> None:
    assert pool([(record(outcome="rejected"), 1.0)]) is None
    assert pool([]) is None


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Five runs of one effect that differ by 3% among themselves and by 2% within: 95% of the intervals hold it."""
    chance = random.Random(7)
    held = 0
    for _ in range(400):
        runs = []
        for _ in range(5):
            center = math.log(1.2) + chance.gauss(0, 0.03)
            runs.append((measured(math.exp(center + chance.gauss(0, 0.02)), 1.96 * 0.02), 1.0))
        found = pool(runs)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.2 <= found.high
    assert 0.85 <= held / 400 <= 0.99
