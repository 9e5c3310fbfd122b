from __future__ import annotations

import hashlib

import pytest

from memory.fingerprint import fingerprint
from memory.types import Strategy


def of(parameters: dict[str, object], *methods: str) -> str:
    return fingerprint("cpp", Strategy(methods or ("tiling",), {"tiling": parameters}))


def test_is_the_documented_digest() -> None:
    """Another tool, or a later version, could not find last night's failures."""
    canonical = '{"backend":"cpp","methods":["simd","tiling"],"parameters":{"tiling":{"bm":64}}}'
    expected = hashlib.sha1(canonical.encode()).hexdigest()[:16]
    assert of({"bm": 64}, "tiling", "simd") == expected


@pytest.mark.parametrize(
    "spelling",
    [{"bm": 64.0}, {"bm": "64"}, {"bm": " 64.0 "}, {"bm": "6.4e1"}, {"bm": 64, "bn": None}],
)
def test_spelling_does_not_evade_a_block(spelling: dict[str, object]) -> None:
    assert of(spelling) == of({"bm": 64})


def test_text_and_flags_are_compared_by_meaning() -> None:
    assert of({"layout": "Row  major", "on": "True"}) == of({"on": True, "layout": "row major"})


def test_order_repetition_and_parameters_of_other_methods_do_not_count() -> None:
    assert of({"bm": 64}, "simd", "tiling", "simd") == of({"bm": 64}, "tiling", "simd")
    smuggled = Strategy(("tiling",), {"tiling": {"bm": 64}, "nonce": {"x": 1}, "simd": {}})
    assert fingerprint("cpp", smuggled) == of({"bm": 64})


@pytest.mark.parametrize("other", [{"bm": 128}, {"bn": 64}, {}, {"bm": "64x64"}, {"bm": [64]}, {"bm": True}])
def test_different_strategies_stay_different(other: dict[str, object]) -> None:
    """A failure with a 64 tile would forbid the 128 tile."""
    assert of(other) != of({"bm": 64})


def test_flag_is_not_the_number_one() -> None:
    assert of({"depth": True}) != of({"depth": 1})


def test_methods_and_backend_count() -> None:
    assert of({}, "tiling") != of({}, "tiling", "simd")
    assert fingerprint("cuda", Strategy(("tiling",))) != fingerprint("cpp", Strategy(("tiling",)))


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), "1e999", "-9" * 30, {"a": [1, {"b": None}]}])
def test_odd_values_of_a_model_have_a_fingerprint(value: object) -> None:
    """A run would die of a number in an answer."""
    assert len(of({"x": value})) == 16
    assert of({"x": value}) != of({})


def test_what_json_cannot_hold_is_named() -> None:
    with pytest.raises(TypeError, match="a strategy parameter is a set"):
        of({"x": {1}})
