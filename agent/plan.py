"""The plan a model answers: `methods.json`, its schema, and the rules a schema cannot say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory.fingerprint import fingerprint
from memory.recall import blocked_by
from memory.types import Recall, Strategy
from profiling.findings import AXES, Axis, Metric, Profile
from prompts.catalogue import Catalogue, Method, switch_name

# A quoted value counts as the profile's when it is within 1% of it: models round.
_QUOTE_TOLERANCE = 0.01


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Trigger(_Part):
    """A metric of the profile, cited with its value."""

    metric: str
    value: float


class PlannedMethod(_Part):
    """One method of the plan."""

    # It becomes a file name and a macro.
    id: str = Field(pattern=r"^(compute|memory|latency)\.[a-z0-9_]{1,48}$")
    axis: Axis
    why: str
    triggers: tuple[Trigger, ...] = Field(min_length=1)
    trigger_strength: float = Field(ge=0, le=1)
    parameters: Mapping[str, str | int | float | bool] = {}
    new: bool = False
    description: str = ""


class Skipped(_Part):
    """A method of higher priority left out, with the reason."""

    id: str
    reason: str


class BranchVariant(_Part):
    """How one branch differs from its siblings."""

    name: str
    variant: str


class Analysis(_Part):
    """What `analysis.md` holds."""

    metrics: str
    reasoning: str
    risks: str


class Plan(_Part):
    """The whole answer."""

    analysis: Analysis
    methods: tuple[PlannedMethod, ...] = Field(min_length=1)
    skipped: tuple[Skipped, ...] = ()
    branches: tuple[BranchVariant, ...] = ()

    @property
    def method_ids(self) -> tuple[str, ...]:
        """The planned ids, in the order of the plan."""
        return tuple(m.id for m in self.methods)

    @property
    def strategy(self) -> Strategy:
        """What memory remembers of the plan."""
        return Strategy(self.method_ids, {m.id: dict(m.parameters) for m in self.methods if m.parameters})

    def variant(self, branch: str) -> str:
        """The variant of a branch, "" where the plan names none."""
        return next((b.variant for b in self.branches if b.name == branch), "")


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What a plan is held to: everything that the prompt told the model.

    Attributes:
        backend: the task's backend.
        arch: the architecture built for.
        features: what the machine and the task offer (`avx2`, `multicore`).
        methods: slots in all.
        axis_budget: slots per axis.
        branches: how many branches are wanted.
        profile: the profile the prompt showed.
        recall: what memory said.
        policy: `strict` rejects a skipped higher priority without a reason; `advisory` notes it.
    """

    backend: str
    arch: str
    features: tuple[str, ...]
    methods: int
    axis_budget: Mapping[Axis, int]
    branches: int
    profile: Profile
    recall: Recall
    policy: Literal["advisory", "strict"]


@dataclass(frozen=True, slots=True)
class PlanReview:
    """Problems reject the plan; notes are logged."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]


def plan_schema() -> Mapping[str, Any]:
    """JSON schema of the answer, for the prompt and for structured output."""
    return Plan.model_json_schema()


def parse_plan(data: Mapping[str, Any]) -> Plan | tuple[str, ...]:
    """The plan, or the schema's complaints, one line each."""
    try:
        return Plan.model_validate(data)
    except ValidationError as error:
        return tuple(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)[:8])


def review_plan(plan: Plan, rules: PlanRules, catalogue: Catalogue) -> PlanReview:
    """Check a plan against the rules of the design, §3."""
    problems = [
        *_unknown_methods(plan, catalogue),
        *_over_budget(plan, rules),
        *_unfit(plan, rules, catalogue),
        *_counted_twice(plan, catalogue),
        *_uncited(plan, rules.profile),
        *_blocked(plan, rules),
        *_branch_names(plan, rules),
    ]
    skips = list(_unexplained_skips(plan, rules, catalogue))
    if rules.policy == "strict":
        return PlanReview((*problems, *skips), ())
    return PlanReview(tuple(problems), tuple(skips))


def _unknown_methods(plan: Plan, catalogue: Catalogue) -> list[str]:
    switches = [switch_name(i) for i in plan.method_ids]
    problems = [
        f"{i} shares its switch with another method"
        for i, s in zip(plan.method_ids, switches, strict=True)
        if switches.count(s) > 1
    ]
    for method in plan.methods:
        if method.id.partition(".")[0] != method.axis:
            problems.append(f"{method.id}: its axis is {method.id.partition('.')[0]}, not {method.axis}")
        if catalogue.known(method.id):
            continue
        if not (method.new and method.description.strip()):
            problems.append(
                f"{method.id}: not in the catalogue (nearest: {catalogue.nearest(method.id)}); "
                "use a listed id, or set new: true with a description"
            )
    return list(dict.fromkeys(problems))


def _over_budget(plan: Plan, rules: PlanRules) -> list[str]:
    problems = []
    if len(plan.methods) > rules.methods:
        problems.append(f"{len(plan.methods)} methods planned; at most {rules.methods}")
    for axis in AXES:
        count = sum(m.axis == axis for m in plan.methods)
        if count > rules.axis_budget.get(axis, 0):
            problems.append(f"{count} methods on the {axis} axis; its budget is {rules.axis_budget.get(axis, 0)}")
    return problems


def _unfit(plan: Plan, rules: PlanRules, catalogue: Catalogue) -> list[str]:
    fitting = {m.id for m in catalogue.select(rules.backend, rules.arch, features=rules.features)}
    return [
        f"{i}: not for backend {rules.backend} on {rules.arch} with what this task offers"
        for i in plan.method_ids
        if catalogue.known(i) and i not in fitting
    ]


def _counted_twice(plan: Plan, catalogue: Catalogue) -> list[str]:
    ids = plan.method_ids
    twice = [f"{a} and {b} are one idea under two names; keep one" for a, b in catalogue.coupled(ids)]
    return [*twice, *(f"{a} and {b} exclude each other; keep one" for a, b in catalogue.conflicting(ids))]


def _uncited(plan: Plan, profile: Profile) -> list[str]:
    problems = []
    for method in plan.methods:
        for trigger in method.triggers:
            measured = profile.value(trigger.metric)
            if measured is None:
                problems.append(f"{method.id}: cites {trigger.metric}, which the profile does not hold")
            elif not _quotes(trigger.value, measured):
                problems.append(
                    f"{method.id}: cites {trigger.metric} = {trigger.value:g}; the profile says {measured:.4g}"
                )
    return problems


def _quotes(cited: float, measured: float) -> bool:
    return math.isclose(cited, measured, rel_tol=_QUOTE_TOLERANCE)


def _blocked(plan: Plan, rules: PlanRules) -> list[str]:
    """Exactly what failed is refused. What failed by itself may work in other company: see docs/memory.md."""
    advice = blocked_by(rules.recall, fingerprint(rules.backend, plan.strategy))
    if advice is None:
        return []
    return [
        f"{' + '.join(advice.methods)} is blocked by memory record {advice.record_id}: {advice.evidence}; "
        "change the methods or their parameters"
    ]


def _branch_names(plan: Plan, rules: PlanRules) -> list[str]:
    expected = [f"b{i}" for i in range(rules.branches)]
    names = [b.name for b in plan.branches]
    return [] if names == expected else [f"branches must be exactly {', '.join(expected)}, in this order (got {names})"]


def _unexplained_skips(plan: Plan, rules: PlanRules, catalogue: Catalogue) -> list[str]:
    """Higher-priority methods whose triggers the profile shows, left out without a reason."""
    explained = {s.id for s in plan.skipped} | set(plan.method_ids)
    notes = []
    for axis in AXES:
        known = [m.id for m in plan.methods if m.axis == axis and catalogue.known(m.id, rules.backend)]
        chosen = [catalogue.get(i, rules.backend).priority for i in known]
        if not chosen:
            continue
        for method in catalogue.select(rules.backend, rules.arch, (axis,), rules.features):
            if method.priority < max(chosen) and method.id not in explained and _triggered(method, rules.profile):
                notes.append(f"{method.id} has a higher priority on the {axis} axis and was skipped without a reason")
    return notes


def _triggered(method: Method, profile: Profile) -> bool:
    metrics: dict[str, Metric] = {m.name: m for m in profile.metrics}
    shown = [(metrics[t.metric], t.when) for t in method.triggers if t.metric in metrics]
    return any(m.distance >= 0.5 and m.good != when for m, when in shown)
