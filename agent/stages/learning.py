"""What goes into strategy memory, once an iteration has its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.events import Attributed, Evaluated, Remembered
from agent.plan import Plan
from agent.run import Run
from agent.stages.ablation import Ablation
from agent.stages.outcomes import BranchFates, Origin, attempt_records, branch_fates, failure_records
from backends.types import Rejected
from memory.errors import StoreError
from memory.types import Record
from profiling.findings import Comparison


def remember_attempt(
    run: Run,
    iteration: int,
    plan: Plan,
    comparison: Comparison | Rejected,
    attributed: Attributed,
    ablations: Mapping[str, Ablation],
) -> None:
    """Store what the champion showed; arguments as those of `attempt_records`."""
    fates = _fates(run, iteration)
    records = attempt_records(_origin(run, iteration), plan, comparison, attributed.rows, ablations, fates)
    _store(run, iteration, records)


def remember_failure(run: Run, iteration: int, plan: Plan) -> None:
    """No branch passed: store what that says of the plan."""
    _store(run, iteration, failure_records(_origin(run, iteration), plan, _fates(run, iteration)))


def _origin(run: Run, iteration: int) -> Origin:
    return Origin(run.scope, run.run_id, iteration, run.versions, run.smallest_gain)


def _fates(run: Run, iteration: int) -> BranchFates:
    return branch_fates(event for event in run.journal.all(Evaluated) if event.iteration == iteration)


def _store(run: Run, iteration: int, records: Sequence[Record]) -> None:
    def store() -> Remembered:
        run.progress.activity("remembering")
        try:
            ids = run.store.add(records)
        except (
            StoreError,
            ValueError,
        ) as error:  # the latter: a record that cannot be kept, such as one of a huge plan
            run.note(f"iter{iteration}/remember", f"iteration {iteration}: nothing remembered: {error}")
            ids = ()
        lessons = tuple(r.lesson for r in records if r.lesson)
        return Remembered(key=f"iter{iteration}", iteration=iteration, records=ids, lessons=lessons)

    run.journal.once(Remembered, f"iter{iteration}", store)
