from __future__ import annotations

from datetime import timedelta

import pytest

from memory.decay import HALF_LIFE_DAYS, version_distance, weight
from memory.recall import blocked_by, recall
from tests.unit.memory.records import GEMM, NOW, record, stored

GCC = {"g++": "g++ (Debian 12.2.0-14) 12.2.0", "roofclimb": "0.1.0", "objdump": "2.40"}


@pytest.mark.parametrize(
    ("now", "far"),
    [
        (GCC, 0.0),
        ({**GCC, "g++": "g++ (Debian 12.2.0-15) 12.2.0"}, 0.02),
        ({**GCC, "g++": "g++ (GCC) 12.3.0"}, 0.1),
        ({**GCC, "g++": "g++ (GCC) 13.1.0"}, 0.5),
        ({**GCC, "g++": "g++ (GCC) 15.1.0"}, 1.5),
        ({**GCC, "g++": "g++ (GCC) 40.0.0"}, 1.5),
        ({**GCC, "objdump": "3.1", "roofclimb": "9.0.0"}, 0.0),
        ({"clang++": "19.1.0"}, 0.0),
        ({**GCC, "g++": "a compiler"}, 0.02),
    ],
)
def test_versions_are_as_far_apart_as_documented(now: dict[str, str], far: float) -> None:
    assert version_distance(GCC, now) == pytest.approx(far)
    assert version_distance(now, GCC) == pytest.approx(far)


def test_the_tool_furthest_off_counts() -> None:
    assert version_distance({"nvcc": "12.8.1", "g++": "12.2.0"}, {"nvcc": "13.0.1", "g++": "12.3.0"}) == 0.5


def test_worth_halves_with_age_and_with_tools() -> None:
    old = NOW - timedelta(days=HALF_LIFE_DAYS)
    assert weight(NOW, NOW, {}, {}) == 1
    assert weight(old, NOW, {}, {}) == 0.5
    assert weight(old, NOW, {"nvcc": "12.0.0"}, {"nvcc": "14.0.0"}) == 0.25
    assert weight(old, NOW, {"nvcc": "12.0.0"}, None) == 0.5
    assert weight(NOW + timedelta(days=1), NOW, {}, {}) == 1  # a clock that was wrong


def test_a_new_compiler_shortens_a_block() -> None:
    """What a new compiler would make fast would stay forbidden as long as if nothing had changed."""
    failed = stored(1, record(outcome="negative", effect=0.9), days_ago=60)
    same, newer = {"g++": "12.2.0"}, {"g++": "13.1.0"}
    assert len(recall([failed], GEMM, now=NOW, versions=same).blocked) == 1
    told = recall([failed], GEMM, now=NOW, versions=newer)
    assert blocked_by(told, failed.fingerprint) is None
