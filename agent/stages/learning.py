"""What goes into strategy memory: outcomes against the kernel a strategy was applied to.

Missing evidence teaches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.events import Attributed, Attribution, Evaluated, Remembered
from agent.plan import Plan
from agent.run import Run
from agent.stages.ablation import Ablation
from backends.types import Rejected
from memory.errors import StoreError
from memory.types import Outcome, Record, Strategy
from profiling.types import Comparison

# A reason is one line of a prompt; a store of logs it is not.
_LONGEST_REASON = 400


def remember_attempt(
    run: Run,
    iteration: int,
    plan: Plan,
    comparison: Comparison | Rejected,
    attributed: Attributed,
    ablations: Mapping[str, Ablation],
) -> None:
    """Store the plan as a whole, and each method by its own attribution.

    Args:
        run: the run.
        iteration: from 1.
        plan: what was applied.
        comparison: the kernel it was applied to (a) against the champion (b).
        attributed: the attribution table.
        ablations: the champion without each method.
    """
    records = []
    for row in attributed.rows:
        ablation = ablations.get(row.method)
        record = _single(run, iteration, plan, row, ablation.comparison if ablation else None)
        if record is not None:
            records.append(record)
    # A plan of one method is that method: only its own attribution may speak for it.
    if len(plan.methods) > 1 and isinstance(comparison, Comparison):
        records.append(_measured(run, iteration, plan.strategy, comparison, ""))
    _store(run, iteration, records)


def remember_failure(run: Run, iteration: int, plan: Plan) -> None:
    """No branch passed: the strategy is stored as rejected if kernels were at fault, with what they did.

    An answer that never came, or times that could not be believed, are no fault of the strategy.
    """
    faults = [
        f"{e.branch}: {e.outcome.reason}"
        for e in run.journal.all(Evaluated)
        if e.iteration == iteration and (isinstance(e.outcome, Rejected) or e.outcome.verdict == "fail")
    ]
    reason = "; ".join(faults)[:_LONGEST_REASON]
    records = [_record(run, iteration, plan.strategy, "rejected", None, reason, "")] if faults else []
    _store(run, iteration, records)


def lesson(run: Run, row: Attribution) -> str:
    """One line of at most 60 words for the next prompt, from the evidence alone."""
    effect = ""
    if row.attribution_ms is not None:
        effect = f" {row.attribution_ms:+.4g} ms [{row.low_ms:.4g}, {row.high_ms:.4g}] when switched off;"
    words = f"{row.method} on {run.scope.family}: {row.method_class};{effect} {row.reason}".split()
    return " ".join(words[:60])


def _single(
    run: Run, iteration: int, plan: Plan, row: Attribution, effect: Comparison | Rejected | None
) -> Record | None:
    parameters = {m.id: dict(m.parameters) for m in plan.methods if m.id == row.method and m.parameters}
    strategy = Strategy((row.method,), parameters)
    if row.method_class == "implementation_failed":
        return _record(run, iteration, strategy, "rejected", None, row.reason, lesson(run, row))
    if row.method_class in ("effective", "ineffective") and isinstance(effect, Comparison):
        return _measured(run, iteration, strategy, effect, lesson(run, row))
    return None


def _measured(run: Run, iteration: int, strategy: Strategy, comparison: Comparison, text: str) -> Record:
    positive = comparison.low > 1 + run.smallest_gain
    gain = f"{comparison.speedup:.3f}x [{comparison.low:.3f}, {comparison.high:.3f}]"
    reason = f"{gain}, smallest claimable gain {run.smallest_gain:.3f}"
    return _record(run, iteration, strategy, "positive" if positive else "negative", comparison, reason, text)


def _record(
    run: Run,
    iteration: int,
    strategy: Strategy,
    outcome: Outcome,
    comparison: Comparison | None,
    reason: str,
    text: str,
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
    )


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
