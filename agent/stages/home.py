"""Where a run's other places meet its own device: they learn what they need, and what wins there is measured here."""

from __future__ import annotations

from dataclasses import replace

from agent.events import Evaluated, FloorFound
from agent.executors.types import Setting
from agent.run import Kernel, Run
from agent.stages.champion import accepts
from backends.types import Rejected
from profiling.findings import Comparison, Evaluation


def prepare_places(run: Run, base: Kernel, baseline: Kernel) -> None:
    """Wherever kernels are evaluated the task is tested and the best kernel timed; nobody waits for it."""
    floor = run.journal.find(FloorFound, run.key(0, "floor"))
    run.executor.prepare(Setting(baseline.built, base.built, None if floor is None else floor.suspect_ms))


def confirm_at_home(
    run: Run, iteration: int, champion: Kernel, comparison: Comparison | Rejected
) -> tuple[Kernel, Comparison | Rejected]:
    """A champion that would be accepted, and was found right elsewhere, is verified and timed on the run's own device.

    So all that is claimed rests on one device, whose harness was tried on known exploits.

    Returns:
        The champion with its time here, and the comparison; Rejected where it is not right here, or not timed.
    """
    if champion.at_home or not accepts(comparison, run.smallest_gain)[0]:
        return champion, comparison
    branch = champion.label.rpartition("/")[2]
    key = run.key(iteration, f"{branch}/home")

    def measure() -> Evaluated:
        run.progress.activity(f"verifying and timing {champion.label} on the run's own device")
        outcome = run.harness.evaluate(champion.built.artifact)
        return Evaluated(key=key, iteration=iteration, branch=branch, build_s=None, outcome=outcome)

    outcome = run.journal.once(Evaluated, key, measure).outcome
    assert isinstance(outcome, Evaluation)
    if outcome.verdict == "pass" and outcome.timing is not None:
        return replace(champion, median_ms=outcome.timing.median_ms, at_home=True), comparison
    reason = f"right elsewhere, and {outcome.verdict} on the run's own device: {outcome.reason}"
    return champion, Rejected("verify" if outcome.verdict == "fail" else "time", reason)
