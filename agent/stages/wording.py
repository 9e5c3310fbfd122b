"""The prompts of each stage: plain data for the templates, drawn from the run. Dims never appear as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.events import Attributed, BranchWritten, ChampionDecided, Evaluated, IterationEnded, PlanDecided, Sanitized
from agent.llm.prices import estimate_tokens
from agent.plan import Plan
from agent.run import Kernel, Run
from agent.stages.evidence import Evidence
from agent.stages.profile_wording import profile_values
from agent.stages.task_wording import task_text
from backends.types import Rejected
from memory.telling import tell
from profiling.findings import Axis
from prompts.catalogue import Catalogue, Method, switch_name
from prompts.renderer import number, render

_LONGEST_FAILURE = 300
_MOST_FINDINGS = 6


def system_prompt() -> str:
    """The system text of every request."""
    return render("system")


def plan_prompt(
    run: Run, best: Kernel, evidence: Evidence, problems: Sequence[str], *, brief: bool = False
) -> tuple[str, str, str]:
    """System text, cacheable prefix and the rest of a plan request.

    `brief` leaves out what a plan can do without: all but the leading metric of each axis, the profile of each device
    kernel, ncu's rules, the instruction mix and what was tried before. The task, its signature and the kernel stay.
    """
    shown, profile = [list(metrics) for metrics in evidence.top.values()], evidence.profile
    if brief:
        shown, profile = [metrics[:1] for metrics in shown], replace(profile, kernels=(), rules=())
    axes = {axis: slots for axis, slots in evidence.axis_budget.items() if slots}
    arch = run.device.arch if run.gpu is None else run.gpu.arch
    methods = offered(run.catalogue, run.task.backend.name, arch, evidence.axis_budget, run.features)
    prompt = render(
        "plan",
        headroom=evidence.headroom,
        profile=profile_values(profile, [m for metrics in shown for m in metrics], best.built.resources),
        mix=""
        if brief
        else ", ".join(f"{name} {number(v) if not isinstance(v, str) else v}" for name, v in evidence.mix.items()),
        history=[] if brief else _history(run),
        recall=tell(
            evidence.recall, run.task.config.memory.tokens, methods=[m.id for m in methods], count=estimate_tokens
        ),
        methods=[_method(m) for m in methods],
        slots=run.search.methods,
        axis_budget=", ".join(f"{axis} {slots}" for axis, slots in axes.items()) or "none",
        branches=[f"b{i}" for i in range(run.search.branches)],
        problems=list(problems),
    )
    return system_prompt(), _prefix(run, best), prompt


def offered(
    catalogue: Catalogue, backend: str, arch: str, axis_budget: Mapping[Axis, int], features: Sequence[str]
) -> tuple[Method, ...]:
    """The methods that a plan is shown: those that fit backend, device and the axes that have slots."""
    axes = [axis for axis, slots in axis_budget.items() if slots]
    return catalogue.select(backend, arch, axes, features)


def branch_prefix(run: Run, best: Kernel, plan: Plan) -> str:
    """What all branch requests of an iteration share: the task, the best kernel and the plan."""
    methods = [
        {
            "id": m.id,
            "axis": m.axis,
            "why": m.why,
            "parameters": json.dumps(dict(m.parameters)) if m.parameters else "",
            "switch": switch_name(m.id),
        }
        for m in plan.methods
    ]
    switches = "constant" if run.task.backend.name == "triton" else "macro"
    return _prefix(run, best) + "\n" + render("planned", plan={"methods": methods}, switches=switches)


def branch_prompt(
    run: Run, plan: Plan, branch: str, duplicate_of: str | None = None, unreadable: str | None = None
) -> str:
    """What one branch is asked for."""
    siblings = "; ".join(f"{b.name}: {b.variant}" for b in plan.branches if b.name != branch) or "none"
    return render(
        "branch",
        branch={"name": branch, "variant": plan.variant(branch), "siblings": siblings},
        language=run.language,
        duplicate_of=duplicate_of,
        unreadable=unreadable,
    )


def repair_prompt(run: Run, plan: Plan, branch: str, source: str, failure: Rejected) -> str:
    """What the repair of one branch is asked for."""
    return render(
        "repair",
        branch={"name": branch, "variant": plan.variant(branch)},
        language=run.language,
        source=source,
        failure=failure,
    )


def ablation_prompt(run: Run, plan: Plan, method: str, source: str, unreadable: str | None = None) -> str:
    """What a rewrite without one method is asked for."""
    backend = run.task.backend.name
    title = run.catalogue.get(method, backend).title if run.catalogue.known(method, backend) else method
    return render(
        "ablate",
        methods=plan.method_ids,
        method={"id": method, "title": title},
        language=run.language,
        source=source,
        unreadable=unreadable,
    )


def _prefix(run: Run, best: Kernel) -> str:
    baseline = run.journal.find(Evaluated, run.key(0, "baseline"))
    outcome = None if baseline is None else baseline.outcome
    first = None if outcome is None or isinstance(outcome, Rejected) or outcome.timing is None else outcome.timing
    speedup = None if best.label == "baseline" or first is None else first.median_ms / best.median_ms
    kernel = render(
        "best",
        best={
            "label": best.label,
            "median_ms": best.median_ms,
            "speedup": speedup,
            "source": best.source.rstrip("\n"),
            "language": run.language,
        },
    )
    return f"{task_text(run)}\n{kernel}"


def _method(method: Method) -> Mapping[str, object]:
    return {
        "id": method.id,
        "axis": method.axis,
        "priority": method.priority,
        "title": method.title,
        "description": method.description,
        "triggers": ", ".join(f"{t.metric} {t.when}" for t in method.triggers),
        "parameters": list(method.parameters),
    }


def _history(run: Run) -> list[Mapping[str, object]]:
    entries: list[Mapping[str, object]] = []
    for ended in run.journal.all(IterationEnded):
        i = ended.iteration
        plans = [e for e in run.journal.all(PlanDecided) if e.iteration == i and e.plan]
        rows = [e.rows for e in run.journal.all(Attributed) if e.iteration == i]
        champions = [e.branch for e in run.journal.all(ChampionDecided) if e.iteration == i]
        champion = f" Champion {champions[-1]}." if champions else ""
        entries.append(
            {
                "iteration": i,
                "methods": plans[-1].plan.method_ids if plans and plans[-1].plan else (),
                "outcome": f"{ended.status}: {ended.reason}.{champion}",
                "rows": rows[-1] if rows else (),
                "failures": _failures(run, i),
                "findings": [str(f) for e in run.journal.all(Sanitized) if e.iteration == i for f in e.report.findings][
                    :_MOST_FINDINGS
                ],
            }
        )
    return entries


def _failures(run: Run, iteration: int) -> list[str]:
    written = [
        f"{e.branch}: {e.rejected.stage}: {e.rejected.reason}"
        for e in run.journal.all(BranchWritten)
        if e.iteration == iteration and e.rejected
    ]
    evaluated = [
        f"{e.branch}: {e.outcome.reason}"
        for e in run.journal.all(Evaluated)
        if e.iteration == iteration and (isinstance(e.outcome, Rejected) or e.outcome.verdict != "pass")
    ]
    return [line[:_LONGEST_FAILURE] for line in (*written, *evaluated)]
