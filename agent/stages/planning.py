"""The plan: asked for with the evidence, held to the rules, sent back with reasons at most twice."""

from __future__ import annotations

from dataclasses import replace

from pydantic import TypeAdapter

from agent.artefacts import write_json, write_text
from agent.errors import ModelUnusable
from agent.events import PlanDecided
from agent.llm.parse import Unreadable, extract_json
from agent.llm.types import LLMError, Reply, Request, Step, roomier
from agent.paths import iteration_folder
from agent.plan import Plan, PlanReview, PlanRules, parse_plan, plan_schema, review_plan
from agent.run import Kernel, Run
from agent.stages.evidence import Evidence, gather
from agent.stages.wording import plan_prompt

_SENT_BACK = 2


def make_plan(run: Run, iteration: int, best: Kernel) -> Plan | None:
    """The iteration's plan, None when no answer held to the rules.

    Evidence is gathered for it; a plan that was decided stays, whatever another device would say.

    Raises:
        StopRun: no axis has as much headroom as `search.near_peak`.
    """
    decided = run.journal.find(PlanDecided, f"iter{iteration}")
    if decided is None:
        decided = run.journal.append(_decide(run, iteration, best, gather(run, iteration, best)))
    for note in decided.notes:
        run.note(f"iter{iteration}/plan/{note}", f"iteration {iteration}: {note}")
    if decided.plan is not None:
        _write(run, iteration, decided.plan)
    return decided.plan


def plan_request(
    run: Run,
    iteration: int,
    best: Kernel,
    evidence: Evidence,
    problems: tuple[str, ...],
    attempt: int,
    *,
    brief: bool = False,
) -> Request:
    """The request for a plan; `problems` are those of the answer before, `brief` is for a model that takes no more."""
    system, prefix, prompt = plan_prompt(run, best, evidence, problems, brief=brief)
    step = Step(iteration, "plan", None, attempt)
    return Request(step, system, prefix, prompt, run.output_limit, plan_schema())


def plan_rules(run: Run, evidence: Evidence) -> PlanRules:
    """What today's prompt holds a plan to."""
    return PlanRules(
        backend=run.task.backend.name,
        arch=run.machine.arch,
        features=run.features,
        methods=run.search.methods,
        axis_budget=evidence.axis_budget,
        branches=run.search.branches,
        profile=replace(evidence.profile, metrics=tuple(m for shown in evidence.top.values() for m in shown)),
        recall=evidence.recall,
        policy=run.search.policy,
    )


def _decide(run: Run, iteration: int, best: Kernel, evidence: Evidence) -> PlanDecided:
    problems: tuple[str, ...] = ()
    cut = brief = False
    today = plan_rules(run, evidence)
    for attempt in range(1 + _SENT_BACK):
        run.checkpoint()
        run.progress.activity("asking for a plan")
        request = plan_request(run, iteration, best, evidence, problems, attempt, brief=brief)
        if cut:
            request = roomier(request)
        try:
            reply = run.asker.ask(request, {"rules": today})
        except LLMError as error:
            if error.kind == "too-long" and not brief:
                run.note(f"iter{iteration}/brief", f"iteration {iteration}: asked with less of the profile: {error}")
                brief = True
                continue
            if error.kind == "too-long":
                raise ModelUnusable(f"the language model cannot be used: {error}") from error
            return PlanDecided(key=f"iter{iteration}", iteration=iteration, plan=None, problems=(str(error),))
        plan, review = _read(run, request.step, reply, today)
        if plan is not None and not review.problems:
            return PlanDecided(key=f"iter{iteration}", iteration=iteration, plan=plan, notes=review.notes)
        problems, cut = review.problems, reply.stop == "truncated"
    return PlanDecided(key=f"iter{iteration}", iteration=iteration, plan=None, problems=problems)


def _read(run: Run, step: Step, reply: Reply, today: PlanRules) -> tuple[Plan | None, PlanReview]:
    if reply.stop == "truncated":
        return None, PlanReview(("the answer was cut off at the output limit; answer shorter",), ())
    try:
        plan = parse_plan(extract_json(reply.text))
    except Unreadable as error:
        return None, PlanReview((f"the answer is not one JSON object: {error}",), ())
    if not isinstance(plan, Plan):
        return None, PlanReview(plan, ())
    recorded = run.asker.recorded_context(step)
    if recorded is None:
        return plan, review_plan(plan, today, run.catalogue)
    # A recorded plan answered another day's prompt: it is held to that one, and what today would refuse is logged.
    then = TypeAdapter(PlanRules).validate_python(recorded["rules"]) if "rules" in recorded else today
    review = review_plan(plan, then, run.catalogue)
    differences = tuple(
        f"recorded plan, today's rules differ: {p}" for p in review_plan(plan, today, run.catalogue).problems
    )
    return plan, PlanReview(review.problems, (*review.notes, *differences))


def _write(run: Run, iteration: int, plan: Plan) -> None:
    folder = iteration_folder(run.folder, iteration)
    write_json(folder / "methods.json", plan)
    analysis = plan.analysis
    write_text(
        folder / "analysis.md",
        f"# Iteration {iteration}\n\n## Metrics\n\n{analysis.metrics}\n\n## Reasoning\n\n{analysis.reasoning}\n\n"
        f"## Risks\n\n{analysis.risks}\n",
    )
