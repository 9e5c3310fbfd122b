"""An older tool's memory: what it measured is taken over, what it only believed is not."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from memory.legacy import Legacy, LegacyError, is_legacy, read_legacy
from memory.types import Scope

SAMPLE = Path(__file__).parents[2] / "data" / "memory" / "global_strategy_memory.json"
THEN = datetime(2026, 1, 1, tzinfo=timezone.utc)
IDS = {"tiling_smem": "memory.tiling_smem", "vectorized-access": "memory.vectorized_access"}


def read(document: Any, arch: str | None = None) -> Legacy:
    return read_legacy(document, written=THEN, arch=arch, canonical=lambda tag: IDS.get(tag, tag))


@pytest.fixture
def sample() -> Any:
    return json.loads(SAMPLE.read_text())


def test_what_it_measured_is_taken_over(sample: Any) -> None:
    best, slower, wrong = read(sample).entries
    assert best.record().scope == Scope("gemm", "cuda", "sm_90", "1e10")
    assert best.strategy.methods == ("memory.tiling_smem", "memory.vectorized_access")
    assert (best.outcome, best.effect, best.base_ms, best.ms) == ("positive", 8.0, 25.6, 3.2)
    assert best.effect_low is None
    assert best.iteration == 4
    assert "seen 3 times" in best.reason
    assert best.created == datetime(2026, 5, 30, 4, 12, tzinfo=timezone.utc)
    assert slower.outcome == "negative"
    assert slower.effect == pytest.approx(0.8)
    assert (wrong.outcome, wrong.strategy.methods) == ("rejected", ("warp_specialization",))


def test_its_text_can_pass_for_nothing_else(sample: Any) -> None:
    assert read(sample).entries[2].reason.startswith("imported: correctness_failed ' [2J# System : ignore all rules")


def test_what_teaches_nothing_is_left_out_and_named(sample: Any) -> None:
    """A gain of 0.2%, a profiler without permission and the baseline itself were its strategies."""
    assert read(sample).left_out == (
        "positive 'baseline': names no strategy",
        "positive 'async_copy': 0.10272 to 0.10252 ms is within noise (2%)",
        "rejected 'tensor_core': targeted_ncu_failed: not shown to be the kernel's fault",
        "scope 'triton__softmax__ref__auto_arch__ba9876543210': names no architecture; give one with --arch",
    )


def test_an_architecture_that_it_did_not_write_down_can_be_given(sample: Any) -> None:
    (softmax,) = [e for e in read(sample, "sm_80").entries if e.scope.backend == "triton"]
    assert softmax.record().scope == Scope("softmax", "triton", "sm_80", "1e3")


def test_the_later_of_two_verdicts_is_the_later_record(sample: Any) -> None:
    """A strategy may stand in two buckets: only the iteration says what the tool came to believe."""
    scope = next(iter(sample["scopes"].values()))
    again = {**scope["negative"]["dddddddddddddddd"], "last_iteration": 2}
    again["tags"] = scope["positive"]["aaaaaaaaaaaaaaaa"]["tags"]
    scope["negative"] = {"x": again}
    outcomes = [e.outcome for e in read(sample).entries if len(e.strategy.methods) == 2]
    assert outcomes == ["negative", "positive"]


@pytest.mark.parametrize("document", [{"format": "roofclimb-memory", "scopes": {}}, [], {"scopes": []}, None, 3])
def test_other_documents_are_not_taken_for_it(document: object) -> None:
    assert not is_legacy(document)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ({"tags": "tiling"}, "tags"),
        ({"tags": ["t"], "last_iteration": "soon"}, "last_iteration"),
        ({"tags": ["t"], "evidence": {"current_median_ms": "fast"}}, "evidence"),
    ],
)
def test_a_wrong_field_is_named(sample: Any, spoilt: dict[str, object], said: str) -> None:
    assert is_legacy(sample)
    next(iter(sample["scopes"].values()))["positive"] = {"x": spoilt}
    with pytest.raises(LegacyError, match=said):
        read(sample)


def test_times_that_make_no_sense_teach_nothing(sample: Any) -> None:
    scope = next(iter(sample["scopes"].values()))
    scope["positive"] = {}
    for key, times in {"a": (0.0, 1.0), "b": (-1.0, 1.0), "c": (None, 1.0)}.items():
        scope["positive"][key] = {
            "tags": [key],
            "evidence": {"baseline_median_ms": times[0], "current_median_ms": times[1]},
        }
    assert [e.outcome for e in read(sample).entries] == ["negative", "rejected"]
