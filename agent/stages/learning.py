"""What goes into strategy memory: outcomes against the kernel a strategy was applied to, beyond this run's noise.

Missing evidence teaches nothing, nor does a fault of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.events import Attributed, Attribution, Evaluated, Remembered
from agent.plan import Plan
from agent.run import Run
from agent.stages.ablation import Ablation
from agent.stages.interplay import Pair, find_pairs
from agent.stages.lessons import failure_lesson, method_lesson, pair_lesson
from backends.types import Rejected
from memory.errors import StoreError
from memory.faults import is_environment
from memory.sanitise import LONGEST_REASON
from memory.types import Outcome, Record, Strategy
from profiling.types import Comparison, Evaluation


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


def remember_attempt(
    run: Run,
    iteration: int,
    plan: Plan,
    comparison: Comparison | Rejected,
    attributed: Attributed,
    ablations: Mapping[str, Ablation],
) -> None:
    """Store the plan as a whole, each method by its own attribution, and methods that help only together as pairs.

    A champion that turned out wrong (in a timed call, or by a sanitizer) proves nothing by its times; it counts against
    the plan where no other branch passed.

    Args:
        run: the run.
        iteration: from 1.
        plan: what was applied.
        comparison: the kernel it was applied to (a) against the champion (b).
        attributed: the attribution table.
        ablations: the champion without each method.
    """
    fates = branch_fates(run, iteration)
    if isinstance(comparison, Rejected) and comparison.stage == "verify":
        alone = fates.passed <= 1 and not fates.undecided and not is_environment(comparison.reason)
        _store(run, iteration, [_rejected(run, iteration, plan, (comparison.reason,))] if alone else [])
        return
    pairs: tuple[Pair, ...] = ()
    if isinstance(comparison, Comparison):
        pairs = find_pairs(attributed.rows, ablations, comparison, run.smallest_gain)
    paired = {method for pair in pairs for method in pair.methods}
    found: list[Record | None] = [
        _single(run, iteration, plan, row, ablations.get(row.method), fates)
        for row in attributed.rows
        if row.method not in paired
    ]
    found += [_pair(run, iteration, plan, pair, fates) for pair in pairs if len(plan.methods) > len(pair.methods)]
    # A plan of one method is that method: only its own attribution may speak for it.
    if len(plan.methods) > 1 and isinstance(comparison, Comparison):
        whole = next((pair for pair in pairs if set(pair.methods) == set(plan.method_ids)), None)
        text = pair_lesson(plan, whole, run.scope.family, fates.failures, fates.count) if whole else ""
        found.append(_measured(run, iteration, plan.strategy, comparison, text, together=whole is not None))
    _store(run, iteration, [record for record in found if record is not None])


def remember_failure(run: Run, iteration: int, plan: Plan) -> None:
    """No branch passed: the strategy is stored as rejected if its kernels were at fault, all of them.

    An answer that never came, times that could not be believed and faults of the machine are no fault of the strategy.
    """
    fates = branch_fates(run, iteration)
    blamed = fates.failures and not fates.undecided
    _store(run, iteration, [_rejected(run, iteration, plan, fates.failures)] if blamed else [])


def branch_fates(run: Run, iteration: int) -> BranchFates:
    """How the branches ended: each by the last that was evaluated of it."""
    last = {e.branch: e.outcome for e in run.journal.all(Evaluated) if e.iteration == iteration}
    failures, passed, undecided = [], 0, 0
    for branch, outcome in last.items():
        if isinstance(outcome, Evaluation) and outcome.verdict == "pass":
            passed += 1
        elif _at_fault(outcome):
            failures.append(f"{branch}: {outcome.reason}")
        else:
            undecided += 1
    return BranchFates(passed, tuple(failures), undecided)


def outcome_of(comparison: Comparison, smallest_gain: float) -> Outcome | None:
    """What a comparison says beyond the run's noise; None where its best guess is a gain that it cannot prove.

    `positive`: the lower end of the interval clears the noise. `negative`: not even its middle does.
    """
    if comparison.low > 1 + smallest_gain:
        return "positive"
    return "negative" if comparison.speedup <= 1 + smallest_gain else None


def _at_fault(outcome: Evaluation | Rejected) -> bool:
    if is_environment(outcome.reason or ""):
        return False
    return outcome.verdict == "fail" if isinstance(outcome, Evaluation) else outcome.stage != "time"


def _single(
    run: Run, iteration: int, plan: Plan, row: Attribution, ablation: Ablation | None, fates: BranchFates
) -> Record | None:
    strategy = Strategy((row.method,), _parameters(plan, (row.method,)))
    text = method_lesson(plan, row, run.scope.family, fates.failures, fates.count)
    effect = ablation.comparison if ablation else None
    if row.method_class == "implementation_failed":
        return _record(run, iteration, strategy, "rejected", None, row.reason, text)
    if row.method_class in ("effective", "ineffective") and isinstance(effect, Comparison):
        return _measured(run, iteration, strategy, effect, text)
    return None


def _pair(run: Run, iteration: int, plan: Plan, pair: Pair, fates: BranchFates) -> Record:
    """A pair out of a larger plan: its effect is what the others' attributions leave of the champion's."""
    reason = (
        f"the plan's gain less its other methods' attributions; alone {pair.alone[0]:.3f}x and {pair.alone[1]:.3f}x"
    )
    return Record(
        scope=run.scope,
        strategy=Strategy(pair.methods, _parameters(plan, pair.methods)),
        outcome="positive",
        effect=pair.effect,
        effect_low=pair.low,
        effect_high=pair.high,
        reason=reason,
        run=run.run_id,
        iteration=iteration,
        versions=run.versions,
        lesson=pair_lesson(plan, pair, run.scope.family, fates.failures, fates.count),
        noise=run.smallest_gain,
        together=True,
    )


def _rejected(run: Run, iteration: int, plan: Plan, failures: Sequence[str]) -> Record:
    reason = "; ".join(failures)[:LONGEST_REASON]
    text = failure_lesson(plan, run.scope.family, failures)
    return _record(run, iteration, plan.strategy, "rejected", None, reason, text)


def _measured(
    run: Run, iteration: int, strategy: Strategy, comparison: Comparison, text: str, together: bool = False
) -> Record | None:
    outcome = outcome_of(comparison, run.smallest_gain)
    if outcome is None:
        return None
    gain = f"{comparison.speedup:.3f}x [{comparison.low:.3f}, {comparison.high:.3f}]"
    reason = f"{gain}, smallest claimable gain {run.smallest_gain:.3f}"
    return _record(run, iteration, strategy, outcome, comparison, reason, text, together)


def _record(
    run: Run,
    iteration: int,
    strategy: Strategy,
    outcome: Outcome,
    comparison: Comparison | None,
    reason: str,
    text: str,
    together: bool = False,
) -> Record:
    return Record(
        scope=run.scope,
        strategy=strategy,
        outcome=outcome,
        effect=comparison.speedup if comparison else None,
        effect_low=comparison.low if comparison else None,
        effect_high=comparison.high if comparison else None,
        reason=reason,
        run=run.run_id,
        iteration=iteration,
        versions=run.versions,
        lesson=text,
        noise=run.smallest_gain,
        base_ms=comparison.a_ms if comparison else None,
        ms=comparison.b_ms if comparison else None,
        together=together,
    )


def _parameters(plan: Plan, methods: Sequence[str]) -> dict[str, dict[str, str | int | float | bool]]:
    return {m.id: dict(m.parameters) for m in plan.methods if m.id in methods and m.parameters}


def _store(run: Run, iteration: int, records: Sequence[Record]) -> None:
    def store() -> Remembered:
        run.progress.activity("remembering")
        try:
            ids = run.store.add(records)
        except StoreError as error:
            run.note(f"iter{iteration}/remember", f"iteration {iteration}: nothing remembered: {error}")
            ids = ()
        lessons = tuple(r.lesson for r in records if r.lesson)
        return Remembered(key=f"iter{iteration}", iteration=iteration, records=ids, lessons=lessons)

    run.journal.once(Remembered, f"iter{iteration}", store)
