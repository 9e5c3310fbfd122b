"""A plan must rest on what was measured; each rule that refuses one has a case here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.plan import Plan, PlanRules, parse_plan, review_plan
from memory.fingerprint import fingerprint
from memory.types import Advice, Recall, Strategy
from profiling.findings import Axis, Metric, Profile
from prompts.catalogue import load_catalogue

CATALOGUE = load_catalogue()
COMPUTE: tuple[Axis, ...] = ("compute",)
MEMORY_AXIS: tuple[Axis, ...] = ("memory",)
FMA = next(m for m in CATALOGUE.select("cpp", "x86_64", COMPUTE))
MEMORY = next(m for m in CATALOGUE.select("cpp", "x86_64", MEMORY_AXIS))
PROFILE = Profile(
    "cachegrind",
    "full",
    (
        Metric("ipc", 1.2345, "inst/cycle", "latency", "high", 0.6, "instructions per cycle"),
        *(Metric(t.metric, 0.5, "ratio", "compute", "low", 0.9, "") for t in FMA.triggers if t.metric != "ipc"),
    ),
    "",
)
RULES = PlanRules(
    "cpp", "x86_64", ("avx2", "fma"), 3, {"compute": 2, "memory": 1, "latency": 0}, 2, PROFILE, Recall(), "advisory"
)


def method(**changes: object) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": FMA.id,
        "axis": "compute",
        "why": "w",
        "triggers": [{"metric": "ipc", "value": 1.234}],
        "trigger_strength": 0.7,
    }
    return {**plain, **changes}


def plan_of(*methods: Mapping[str, Any], branches: tuple[str, ...] = ("b0", "b1")) -> Plan:
    data = {
        "analysis": {"metrics": "m", "reasoning": "r", "risks": "k"},
        "methods": list(methods),
        "branches": [{"name": b, "variant": b} for b in branches],
    }
    plan = parse_plan(data)
    assert isinstance(plan, Plan)
    return plan


def problems(plan: Plan, rules: PlanRules = RULES) -> str:
    return "\n".join(review_plan(plan, rules, CATALOGUE).problems)


def test_a_plan_within_the_rules_passes_with_a_rounded_quote() -> None:
    assert problems(plan_of(method())) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "compute.fmaa_and_fast"}, "not in the catalogue (nearest:"),
        ({"axis": "latency"}, "its axis is"),
        ({"triggers": [{"metric": "ipc", "value": 1.4}]}, "the profile says 1.234"),
        ({"triggers": [{"metric": "dram_magic", "value": 1.0}]}, "which the profile does not hold"),
        ({"id": "latency.cuda_graphs", "axis": "latency"}, "not for backend cpp"),
    ],
)
def test_a_method_that_does_not_hold_is_refused(changes: dict[str, object], said: str) -> None:
    assert said in problems(plan_of(method(**changes)))


def test_a_new_method_needs_a_description() -> None:
    assert "not in the catalogue" in problems(plan_of(method(id="compute.mine", new=True)))
    assert problems(plan_of(method(id="compute.mine", new=True, description="does this"))) == ""


def test_axis_budgets_slots_and_doubles_are_counted() -> None:
    memory = method(id=MEMORY.id, axis="memory")
    new = [method(id=f"memory.n{i}", axis="memory", new=True, description="d") for i in range(2)]
    said = problems(plan_of(method(), method(), memory, *new))
    assert "shares its switch with another method" in said
    assert "5 methods planned; at most 3" in said
    assert "3 methods on the memory axis; its budget is 1" in said


@pytest.mark.parametrize("name", ["compute.x/../../../tmp/evil", "compute.", "Compute.x", "x", "compute." + "a" * 49])
def test_an_id_that_could_leave_the_run_folder_is_no_id(name: str) -> None:
    answer = {
        "analysis": {"metrics": "m", "reasoning": "r", "risks": "k"},
        "methods": [method(id=name, new=True, description="d")],
    }
    assert not isinstance(parse_plan(answer), Plan)


def test_branches_must_be_named_as_asked() -> None:
    assert "branches must be exactly b0, b1" in problems(plan_of(method(), branches=("b0",)))


def test_a_blocked_strategy_is_refused_by_its_fingerprint_alone() -> None:
    strategy = Strategy((FMA.id,), {FMA.id: {"width": 8}})
    advice = Advice(7, fingerprint("cpp", strategy), (FMA.id,), {}, 0.9, "0.90x on gemm")
    rules = replace(RULES, recall=Recall(blocked=(advice,)))
    assert "blocked by memory record 7" in problems(plan_of(method(parameters={"width": 8})), rules)
    assert problems(plan_of(method(parameters={"width": 4})), rules) == ""


def test_a_method_that_failed_by_itself_may_come_in_other_company() -> None:
    """On measured landscapes, refusing it in every plan kept half of the nights from the best kernel for ever."""
    alone = Advice(7, fingerprint("cpp", Strategy((FMA.id,))), (FMA.id,), {}, 1.0, "1.00x on gemm")
    rules = replace(RULES, recall=Recall(blocked=(alone,)))
    other = {**method(), "id": MEMORY.id, "axis": "memory"}
    assert "blocked by memory record 7" in problems(plan_of(method()), rules)
    assert problems(plan_of(method(), other), rules) == ""


def test_a_skipped_priority_is_a_note_when_advisory_and_a_problem_when_strict() -> None:
    ordered = CATALOGUE.select("cpp", "x86_64", COMPUTE)
    last = ordered[-1]
    plan = plan_of(method(id=last.id))
    metrics = tuple(
        Metric(t.metric, 0.5, "ratio", "compute", "low", 0.9, "")
        for m in ordered
        for t in m.triggers
        if t.metric != "ipc"
    )
    rules = replace(RULES, profile=replace(PROFILE, metrics=(PROFILE.metrics[0], *metrics)))
    review = review_plan(plan, rules, CATALOGUE)
    assert any("skipped without a reason" in n for n in review.notes)
    assert not review.problems
    strict = review_plan(plan, replace(rules, policy="strict"), CATALOGUE)
    assert any("skipped without a reason" in p for p in strict.problems)


def test_schema_faults_come_back_as_lines_that_a_model_can_act_on() -> None:
    lines = parse_plan({"methods": [method(trigger_strength=1.5, triggers=[])]})
    assert isinstance(lines, tuple)
    text = "\n".join(lines)
    assert "analysis" in text
    assert "trigger_strength" in text
    assert "triggers" in text
