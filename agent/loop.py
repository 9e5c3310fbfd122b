"""The loop, on one screen: measure, plan, branch, evaluate, compare, ablate, remember, repeat.

Each stage asks the journal first, so running this again over the log of a killed run goes on where it stopped.
"""

from __future__ import annotations

from agent.budget import BudgetExhausted
from agent.events import IterationEnded, StopReason
from agent.run import Kernel, Run, StopRun
from agent.stages.ablation import build_ablations, check_machine_code
from agent.stages.attribution import attribute_champion
from agent.stages.baseline import measure_baseline, measure_noise
from agent.stages.branches import evaluate_branches, repair_branches, write_branches
from agent.stages.champion import decide
from agent.stages.ended import check_patience, end_iteration, kernel_after
from agent.stages.evidence import on_this_device, profile_baseline, profile_champion
from agent.stages.finish import finish
from agent.stages.home import confirm_at_home, prepare_places
from agent.stages.learning import remember_attempt, remember_failure
from agent.stages.planning import make_plan
from agent.stages.trial import hold_trial


def optimise(run: Run) -> None:
    """Make the kernel faster until a stop rule says so; then measure the headline and write the bundle."""
    run.best = baseline = measure_baseline(run)
    profile_baseline(run, baseline)
    reason: StopReason = "iterations"
    note = ""
    for iteration in range(1, run.search.iterations + 1):
        try:
            iterate(run, iteration, baseline)
            check_patience(run, iteration)
        except StopRun as stop:
            reason, note = stop.reason, str(stop)
            break
        except BudgetExhausted as exhausted:
            reason, note = "budget", f"budget: {exhausted}"
            end_iteration(run, iteration, "stopped", note)
            break
    finish(run, baseline, reason, note)


def iterate(run: Run, iteration: int, baseline: Kernel) -> None:
    """One iteration; `run.best` is the champion after it, if that was accepted."""
    if run.journal.find(IterationEnded, f"iter{iteration}") is not None:
        run.best = kernel_after(run, iteration, run.best)
        return
    run.checkpoint()
    base = run.best = on_this_device(run, run.best, baseline)
    measure_noise(run, iteration, base)
    prepare_places(run, base, baseline)
    plan = make_plan(run, iteration, base)
    if plan is None:
        end_iteration(run, iteration, "failed", "no plan held to the rules")
        return
    branches = write_branches(run, iteration, base, plan)
    passed = evaluate_branches(run, iteration, plan, branches)
    passed = passed or repair_branches(run, iteration, base, plan, branches)
    if not passed:
        remember_failure(run, iteration, plan)
        end_iteration(run, iteration, "failed", "no branch was right and could be timed")
        return
    champion = passed[0]
    presence = check_machine_code(run, iteration, plan, base, champion)
    variants = build_ablations(run, iteration, plan, champion) if run.search.ablate else {}
    trial = hold_trial(run, iteration, base, champion, variants)
    champion, comparison = confirm_at_home(run, iteration, champion, trial.champion)
    decision, comparison = decide(run, iteration, champion, comparison)
    if decision.accepted:
        run.best = champion
        profile_champion(run, iteration, champion)
        measure_noise(run, iteration, champion)
    attributed = attribute_champion(run, iteration, plan, presence, trial.ablations, comparison)
    remember_attempt(run, iteration, plan, comparison, attributed, trial.ablations)
    end_iteration(run, iteration, "accepted" if decision.accepted else "not-accepted", decision.reason)
