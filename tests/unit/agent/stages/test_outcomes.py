"""What a night teaches the next one. A wrong lesson costs every night after it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from agent.events import Attribution, Evaluated
from agent.plan import Plan, parse_plan
from agent.stages.ablation import Ablation
from agent.stages.attribution import attribute
from agent.stages.interplay import find_pairs
from agent.stages.outcomes import (
    BranchFates,
    Origin,
    attempt_records,
    branch_fates,
    failure_records,
    outcome_of,
)
from agent.stages.switches import ALL
from backends.types import Rejected
from memory.types import Record, Scope
from memory.wire import LESSON_WORDS
from profiling.findings import Comparison, Evaluation
from tests.unit.agent.stages.test_attribution import compared, on_compute, present, without

NOISE = 0.02
ORIGIN = Origin(Scope("gemm", "cpp", "x86_64", "1e8"), "run_1", 2, {"g++": "12.2.0"}, NOISE)
NO_FAILURES = BranchFates(passed=4, failures=(), undecided=0)


def plan_of(*methods: str) -> Plan:
    plan = parse_plan(
        {
            "analysis": {"metrics": "m", "reasoning": "r", "risks": "k"},
            "methods": [
                {
                    "id": method,
                    "axis": "compute",
                    "why": "w",
                    "triggers": [{"metric": "l1_miss_rate", "value": 0.51234}],
                    "trigger_strength": 0.7,
                    "parameters": {"tile": 64},
                }
                for method in methods
            ],
        }
    )
    assert isinstance(plan, Plan)
    return plan


def attempt(
    champion: Comparison | Rejected, fates: BranchFates = NO_FAILURES, **without_it: float | Comparison | Rejected
) -> dict[tuple[str, ...], Record]:
    """The records of a plan of `compute.NAME` for each NAME, with the champion's speedup over itself without it."""
    methods = [f"compute.{name}" for name in without_it]
    effects = {
        method: compared(effect) if isinstance(effect, float) else effect
        for method, effect in zip(methods, without_it.values(), strict=True)
    }
    ablations: dict[str, Ablation] = {method: without(method, effect) for method, effect in effects.items()}
    ablations[ALL] = without(ALL, compared(1.0))
    rows, _ = attribute(on_compute(*methods), [present(m) for m in methods], ablations, champion, NOISE)
    records = attempt_records(ORIGIN, plan_of(*methods), champion, rows, ablations, fates)
    return {record.strategy.methods: record for record in records}


@pytest.mark.parametrize(
    ("speedup", "width", "outcome"),
    [
        (1.50, 0.01, "positive"),
        (1.0215, 0.0010, "positive"),
        (1.019, 0.002, "negative"),
        (1.00, 0.30, "negative"),
        (0.90, 0.01, "negative"),
        (1.03, 0.02, None),
        (1.30, 0.40, None),
    ],
)
def test_only_what_clears_the_noise_is_an_outcome(speedup: float, width: float, outcome: str | None) -> None:
    """0.10272 to 0.10252 ms was once remembered as a success; a gain that noise hides is no failure either."""
    assert outcome_of(compared(speedup, width), NOISE) == outcome


def test_each_method_is_remembered_by_its_own_attribution_and_the_plan_by_the_champions() -> None:
    records = attempt(compared(1.6), a=1.5, b=1.0)
    assert {methods: r.outcome for methods, r in records.items()} == {
        ("compute.a",): "positive",
        ("compute.b",): "negative",
        ("compute.a", "compute.b"): "positive",
    }
    single = records["compute.a",]
    assert (single.effect, single.effect_low, single.effect_high) == (1.5, 1.49, 1.51)
    assert (single.noise, single.base_ms, single.ms) == (NOISE, 1.5, 1.0)
    assert single.strategy.parameters == {"compute.a": {"tile": 64}}
    assert not any(record.together for record in records.values())


def test_a_methods_share_of_a_plan_is_not_taken_for_a_plan_of_that_method() -> None:
    """A success in the company of another would lift the block of the plan that failed alone."""
    assert {methods: record.in_company for methods, record in attempt(compared(1.6), a=1.5, b=1.0).items()} == {
        ("compute.a",): True,
        ("compute.b",): True,
        ("compute.a", "compute.b"): False,
    }
    assert not attempt(compared(1.5), a=1.5)["compute.a",].in_company
    pair_of_three = attempt(compared(1.5 * 1.2), a=1.5, b=1.5, c=1.2)["compute.a", "compute.b"]
    assert (pair_of_three.together, pair_of_three.in_company) == (True, True)


def test_two_methods_that_help_only_together_are_a_pair_and_nothing_else() -> None:
    """Each looks like 1.5x on its own, and a plan of one of them would be written for nothing."""
    records = attempt(compared(1.5), a=1.49, b=1.5)
    assert list(records) == [("compute.a", "compute.b")]
    pair = records["compute.a", "compute.b"]
    assert (pair.outcome, pair.together, pair.effect) == ("positive", True, 1.5)
    assert "plan both or neither" in pair.lesson


def test_a_pair_is_found_beside_a_method_that_helps_by_itself() -> None:
    records = attempt(compared(1.5 * 1.2), a=1.5, b=1.5, c=1.2)
    assert {methods: record.together for methods, record in records.items()} == {
        ("compute.c",): False,
        ("compute.a", "compute.b"): True,
        ("compute.a", "compute.b", "compute.c"): False,
    }
    assert records["compute.a", "compute.b"].effect == pytest.approx(1.5)
    assert records["compute.a", "compute.b"].effect_low is not None


def test_methods_that_help_by_themselves_are_no_pair() -> None:
    assert len(attempt(compared(1.8), a=1.5, b=1.2)) == 3


def test_a_pair_is_not_claimed_while_a_third_methods_effect_is_unknown() -> None:
    """The pair would be credited with what the third did."""
    records = attempt(compared(1.5), a=1.5, b=1.5, c=Rejected("verify", "wrong"))
    assert not any(record.together for record in records.values())


def test_two_that_are_each_enough_are_no_pair() -> None:
    ablations = {m: without(m, compared(1.0)) for m in ("compute.a", "compute.b")}
    rows: list[Attribution] = []
    found, _ = attribute(
        on_compute("compute.a", "compute.b"),
        [present("compute.a"), present("compute.b")],
        {**ablations, ALL: without(ALL, compared(1.0))},
        compared(1.5),
        NOISE,
    )
    rows += found
    assert [row.method_class for row in rows] == ["interaction", "interaction"]
    assert find_pairs(rows, ablations, compared(1.5), NOISE) == ()


def test_unverified_evidence_teaches_nothing() -> None:
    assert attempt(Rejected("time", "two clocks disagree"), a=Rejected("verify", "wrong"), b=compared(1.03, 0.02)) == {}


def test_a_champion_that_turns_out_wrong_proves_nothing_by_its_times() -> None:
    """A sanitizer found it reading past the end: its speed may be the fault's."""
    unsound = Rejected("verify", "a sanitizer rejects it: heap-buffer-overflow")
    assert attempt(unsound, a=1.5) == {}
    only = BranchFates(passed=1, failures=("b1: y[0]: 1 is not 2",), undecided=0)
    (record,) = attempt(unsound, only, a=1.5).values()
    assert (record.outcome, record.reason) == ("rejected", unsound.reason)


def evaluated(branch: str, outcome: Evaluation | Rejected, repair: int = 0) -> Evaluated:
    key = f"iter2/{branch}" + (f"/repair{repair}" if repair else "")
    return Evaluated(key=key, iteration=2, branch=branch, build_s=None, outcome=outcome)


WRONG = Evaluation("fail", "y[3]: 1 is not 2", (), None)
SUSPECT = Evaluation("suspect", "the clocks disagree", (), None)
BROKEN = Rejected("build", "expected ';'")
FULL_DISK = Rejected("build", "cannot write: No space left on device")


@pytest.mark.parametrize(
    ("outcomes", "remembered"),
    [
        ([WRONG, BROKEN], True),
        ([WRONG, SUSPECT], False),
        ([WRONG, FULL_DISK], False),
        ([FULL_DISK, FULL_DISK], False),
        ([SUSPECT], False),
        ([Rejected("time", "it was shared")], False),
        ([Evaluation("error", "the worker could not be started", (), None)], False),
        ([], False),
    ],
)
def test_only_kernels_that_failed_by_themselves_count_against_a_strategy(
    outcomes: list[Evaluation | Rejected], remembered: bool
) -> None:
    """A full disk once blocked a strategy for ever."""
    fates = branch_fates(evaluated(f"b{at}", outcome) for at, outcome in enumerate(outcomes))
    records = failure_records(ORIGIN, plan_of("compute.a", "compute.b"), fates)
    assert [record.outcome for record in records] == (["rejected"] if remembered else [])


def test_a_repaired_branch_counts_by_its_repair() -> None:
    fates = branch_fates([evaluated("b0", WRONG), evaluated("b0", SUSPECT, repair=1)])
    assert fates == BranchFates(passed=0, failures=(), undecided=1)


def test_a_failure_says_what_every_branch_did() -> None:
    fates = branch_fates([evaluated("b0", WRONG), evaluated("b1", BROKEN)])
    (record,) = failure_records(ORIGIN, plan_of("compute.a"), fates)
    assert record.reason == "b0: y[3]: 1 is not 2; b1: expected ';'"
    assert record.lesson == (
        "compute.a (tile 64) on gemm: cause l1_miss_rate 0.5123; effect all 2 branches failed; "
        "pitfall b0: y[3]: 1 is not 2; b1: expected ';'"
    )


def test_a_lesson_has_cause_effect_and_pitfall() -> None:
    fates = BranchFates(passed=3, failures=("b2: y[3]: 1 is not 2",), undecided=0)
    lesson = attempt(compared(1.5), fates, a=1.5)["compute.a",].lesson
    assert lesson == (
        "compute.a (tile 64) on gemm: cause l1_miss_rate 0.5123; effect effective, 1.500x [1.490, 1.510] with it, "
        "+0.5 ms [0.49, 0.51] when switched off; pitfall 1 of 4 branches failed, b2: y[3]: 1 is not 2"
    )


def test_a_lesson_is_never_longer_than_a_note() -> None:
    fates = BranchFates(passed=0, failures=("b0: " + "word " * 500, "b1: x"), undecided=0)
    (record,) = failure_records(ORIGIN, plan_of(*(f"compute.m{at}" for at in range(8))), fates)
    assert len(record.lesson.split()) <= LESSON_WORDS


def test_a_pairs_interval_holds_the_others_uncertainty() -> None:
    ablations = {f"compute.{m}": without(f"compute.{m}", compared(e)) for m, e in (("a", 1.5), ("b", 1.5), ("c", 1.2))}
    rows, _ = attribute(
        on_compute(*ablations),
        [present(m) for m in ablations],
        {**ablations, ALL: without(ALL, compared(1.0))},
        compared(1.8),
        NOISE,
    )
    (narrow,) = find_pairs(rows, ablations, compared(1.8), NOISE)
    unsure = {**ablations, "compute.c": without("compute.c", replace(compared(1.2), low=1.1, high=1.3))}
    (wide,) = find_pairs(rows, unsure, compared(1.8), NOISE)
    assert math.log(wide.high / wide.low) > 2 * math.log(narrow.high / narrow.low)
