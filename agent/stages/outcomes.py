"""What an iteration's evidence says of its strategies: records against the kernel they were applied to, beyond noise.

Missing evidence teaches nothing, nor does a fault of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.events import Attribution, Evaluated
from agent.plan import Plan
from agent.stages.ablation import Ablation
from agent.stages.interplay import Pair, find_pairs
from agent.stages.lessons import failure_lesson, method_lesson, pair_lesson
from backends.types import Rejected
from memory.faults import is_environment
from memory.sanitise import LONGEST_REASON
from memory.types import Outcome, Record, Scope, Strategy
from profiling.findings import Comparison, Evaluation


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records come from: `noise` is the smallest relative gain that the run may claim."""

    scope: Scope
    run: str
    iteration: int
    versions: Mapping[str, str]
    noise: float


@dataclass(frozen=True, slots=True)
class BranchFates:
    """How an iteration's branches ended, repairs included.

    Attributes:
        passed: how many were right and timed.
        failures: one line for each that failed by its own fault.
        undecided: how many ended by what says nothing of the strategy: a time that cannot be believed, a fault of the
            machine.
    """

    passed: int
    failures: tuple[str, ...]
    undecided: int

    @property
    def count(self) -> int:
        """Branches that came to be built."""
        return self.passed + len(self.failures) + self.undecided


def branch_fates(evaluated: Iterable[Evaluated]) -> BranchFates:
    """How the branches of an iteration ended: each by the last that was evaluated of it."""
    last = {event.branch: event.outcome for event in evaluated}
    failures, passed, undecided = [], 0, 0
    for branch, outcome in last.items():
        if isinstance(outcome, Evaluation) and outcome.verdict == "pass":
            passed += 1
        elif _at_fault(outcome):
            failures.append(f"{branch}: {outcome.reason}")
        else:
            undecided += 1
    return BranchFates(passed, tuple(failures), undecided)


def outcome_of(comparison: Comparison, noise: float) -> Outcome | None:
    """What a comparison says beyond the run's noise; None where its best guess is a gain that it cannot prove.

    `positive`: the lower end of the interval clears the noise. `negative`: not even its middle does.
    """
    if comparison.low > 1 + noise:
        return "positive"
    return "negative" if comparison.speedup <= 1 + noise else None


def attempt_records(
    origin: Origin,
    plan: Plan,
    comparison: Comparison | Rejected,
    rows: Sequence[Attribution],
    ablations: Mapping[str, Ablation],
    fates: BranchFates,
) -> tuple[Record, ...]:
    """The plan as a whole, each method by its own attribution, and methods that help only together as pairs.

    A champion that turned out wrong (in a timed call, or by a sanitizer) proves nothing by its times; it counts against
    the plan where no other branch passed.

    Args:
        origin: where the records come from.
        plan: what was applied.
        comparison: the kernel it was applied to (a) against the champion (b).
        rows: the attribution table.
        ablations: the champion without each method.
        fates: how the branches ended.
    """
    if isinstance(comparison, Rejected) and comparison.stage == "verify":
        alone = fates.passed <= 1 and not fates.undecided and not is_environment(comparison.reason)
        return (_rejected(origin, plan, (comparison.reason,)),) if alone else ()
    pairs: tuple[Pair, ...] = ()
    if isinstance(comparison, Comparison):
        pairs = find_pairs(rows, ablations, comparison, origin.noise)
    paired = {method for pair in pairs for method in pair.methods}
    found = [_single(origin, plan, row, ablations.get(row.method), fates) for row in rows if row.method not in paired]
    found += [_pair(origin, plan, pair, fates) for pair in pairs if len(plan.methods) > len(pair.methods)]
    # A plan of one method is that method: only its own attribution may speak for it.
    if len(plan.methods) > 1 and isinstance(comparison, Comparison):
        whole = next((pair for pair in pairs if set(pair.methods) == set(plan.method_ids)), None)
        text = pair_lesson(plan, whole, origin.scope.family, fates.failures, fates.count) if whole else ""
        found.append(_measured(origin, plan.strategy, comparison, text, together=whole is not None))
    return tuple(
        replace(record, in_company=len(record.strategy.methods) < len(plan.methods)) for record in found if record
    )


def failure_records(origin: Origin, plan: Plan, fates: BranchFates) -> tuple[Record, ...]:
    """No branch passed: the strategy is rejected if its kernels were at fault, all of them.

    An answer that never came, times that could not be believed and faults of the machine are no fault of the strategy.
    """
    return (_rejected(origin, plan, fates.failures),) if fates.failures and not fates.undecided else ()


def _at_fault(outcome: Evaluation | Rejected) -> bool:
    if is_environment(outcome.reason or ""):
        return False
    return outcome.verdict == "fail" if isinstance(outcome, Evaluation) else outcome.stage != "time"


def _single(
    origin: Origin, plan: Plan, row: Attribution, ablation: Ablation | None, fates: BranchFates
) -> Record | None:
    strategy = Strategy((row.method,), _parameters(plan, (row.method,)))
    text = method_lesson(plan, row, origin.scope.family, fates.failures, fates.count)
    effect = ablation.comparison if ablation else None
    if row.method_class == "implementation_failed":
        return _record(origin, strategy, "rejected", None, row.reason, text)
    if row.method_class in ("effective", "ineffective") and isinstance(effect, Comparison):
        return _measured(origin, strategy, effect, text)
    return None


def _pair(origin: Origin, plan: Plan, pair: Pair, fates: BranchFates) -> Record:
    """A pair out of a larger plan: its effect is what the others' attributions leave of the champion's."""
    first, second = pair.alone
    return Record(
        scope=origin.scope,
        strategy=Strategy(pair.methods, _parameters(plan, pair.methods)),
        outcome="positive",
        effect=pair.effect,
        effect_low=pair.low,
        effect_high=pair.high,
        reason=f"the plan's gain less its other methods' attributions; alone {first:.3f}x and {second:.3f}x",
        run=origin.run,
        iteration=origin.iteration,
        versions=origin.versions,
        lesson=pair_lesson(plan, pair, origin.scope.family, fates.failures, fates.count),
        noise=origin.noise,
        together=True,
    )


def _rejected(origin: Origin, plan: Plan, failures: Sequence[str]) -> Record:
    reason = "; ".join(failures)[:LONGEST_REASON]
    text = failure_lesson(plan, origin.scope.family, failures)
    return _record(origin, plan.strategy, "rejected", None, reason, text)


def _measured(
    origin: Origin, strategy: Strategy, comparison: Comparison, text: str, together: bool = False
) -> Record | None:
    outcome = outcome_of(comparison, origin.noise)
    if outcome is None:
        return None
    gain = f"{comparison.speedup:.3f}x [{comparison.low:.3f}, {comparison.high:.3f}]"
    reason = f"{gain}, smallest claimable gain {origin.noise:.3f}"
    return _record(origin, strategy, outcome, comparison, reason, text, together)


def _record(
    origin: Origin,
    strategy: Strategy,
    outcome: Outcome,
    comparison: Comparison | None,
    reason: str,
    text: str,
    together: bool = False,
) -> Record:
    return Record(
        scope=origin.scope,
        strategy=strategy,
        outcome=outcome,
        effect=comparison.speedup if comparison else None,
        effect_low=comparison.low if comparison else None,
        effect_high=comparison.high if comparison else None,
        reason=reason,
        run=origin.run,
        iteration=origin.iteration,
        versions=origin.versions,
        lesson=text,
        noise=origin.noise,
        base_ms=comparison.a_ms if comparison else None,
        ms=comparison.b_ms if comparison else None,
        together=together,
    )


def _parameters(plan: Plan, methods: Sequence[str]) -> dict[str, dict[str, str | int | float | bool]]:
    return {m.id: dict(m.parameters) for m in plan.methods if m.id in methods and m.parameters}
