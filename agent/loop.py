"""The loop, on one screen: measure, plan, branch, evaluate, challenge, ablate, remember, repeat.

Each stage asks the journal first, so running this again over the log of a killed run goes on where it stopped.
"""

from __future__ import annotations

from agent.budget import BudgetExhausted
from agent.events import Attributed, IterationEnded, IterationStatus, StopReason
from agent.run import Kernel, Run, StopRun
from agent.stages.ablation import ablate, check_machine_code
from agent.stages.attribution import attribute
from agent.stages.baseline import measure_baseline, measure_noise
from agent.stages.branches import evaluate_branches, repair_branches, write_branches
from agent.stages.champion import challenge
from agent.stages.evidence import gather, on_this_device, profile_kernel
from agent.stages.finish import finish
from agent.stages.learning import remember_attempt, remember_failure
from agent.stages.planning import make_plan
from profiling.types import Comparison


def optimise(run: Run) -> None:
    """Make the kernel faster until a stop rule says so; then measure the headline and write the bundle."""
    run.best = baseline = measure_baseline(run)
    reason: StopReason = "iterations"
    note = ""
    try:
        for iteration in range(1, run.search.iterations + 1):
            iterate(run, iteration, run.best)
            _check_patience(run, iteration)
    except StopRun as stop:
        reason, note = stop.reason, str(stop)
    except BudgetExhausted as exhausted:
        reason, note = "budget", f"budget: {exhausted}"
    finish(run, baseline, run.best, reason, note)


def iterate(run: Run, iteration: int, best: Kernel) -> None:
    """One iteration; `run.best` is the champion after it, if that was accepted."""
    run.checkpoint()
    best = on_this_device(run, best)
    measure_noise(run, iteration, best)
    evidence = gather(run, iteration, best)
    plan = make_plan(run, iteration, best, evidence)
    if plan is None:
        _end(run, iteration, "failed", "no plan held to the rules")
        return
    branches = write_branches(run, iteration, best, plan)
    passed = evaluate_branches(run, iteration, branches) or repair_branches(run, iteration, best, plan, branches)
    if not passed:
        remember_failure(run, iteration, plan, "every branch failed its build or its check")
        _end(run, iteration, "failed", "every branch failed its build or its check")
        return
    champion = passed[0]
    decision, comparison = challenge(run, iteration, champion, best)
    if decision.accepted:
        run.best = champion
    presence = check_machine_code(run, iteration, plan, best, champion)
    ablations = ablate(run, iteration, plan, best, champion) if run.search.ablate else {}
    rows, audit = attribute(plan, presence, ablations, comparison, run.smallest_gain)
    gain_ms = comparison.delta_ms if isinstance(comparison, Comparison) else None
    key = run.key(iteration, "attribution")
    attributed = run.journal.once(
        Attributed,
        key,
        lambda: Attributed(key=key, iteration=iteration, gain_ms=gain_ms, rows=rows, audit=audit),
    )
    effects = {m: a.comparison for m, a in ablations.items() if isinstance(a.comparison, Comparison)}
    if decision.accepted:
        profile_kernel(run, champion)
    remember_attempt(run, iteration, plan, comparison, attributed, effects)
    _end(run, iteration, "accepted" if decision.accepted else "not-accepted", decision.reason)


def _end(run: Run, iteration: int, status: IterationStatus, reason: str) -> None:
    key = f"iter{iteration}"
    run.journal.once(
        IterationEnded, key, lambda: IterationEnded(key=key, iteration=iteration, status=status, reason=reason)
    )


def _check_patience(run: Run, iteration: int) -> None:
    patience = run.search.patience
    recent = [e.status for e in run.journal.all(IterationEnded) if e.iteration <= iteration][-(patience or 0) :]
    if patience is not None and len(recent) == patience and "accepted" not in recent:
        raise StopRun("patience", f"{patience} iterations without an accepted gain")
