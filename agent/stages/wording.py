"""What the prompts are told: plain data for the templates, drawn from the run. Dims never appear as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from agent.events import Attributed, BranchWritten, ChampionDecided, Evaluated, IterationEnded, PlanDecided
from agent.plan import Plan
from agent.run import Kernel, Run
from agent.stages.evidence import Evidence
from backends.types import Rejected
from profiling.types import Tensor
from prompts.catalogue import Method, switch_name
from prompts.renderer import number, render

_LONGEST_FAILURE = 300


def system_prompt() -> str:
    """The system text of every request."""
    return render("system")


def plan_prompt(run: Run, best: Kernel, evidence: Evidence, problems: Sequence[str]) -> tuple[str, str, str]:
    """System text, cacheable prefix and the rest of a plan request."""
    axes = {axis: slots for axis, slots in evidence.axis_budget.items() if slots}
    methods = run.catalogue.select(run.task.backend.name, run.device.arch, tuple(axes), run.features)
    prompt = render(
        "plan",
        headroom=evidence.headroom,
        profile={
            "source": evidence.profile.source,
            "level": evidence.profile.level,
            "note": evidence.profile.note,
            "metrics": [m for metrics in evidence.top.values() for m in metrics],
        },
        mix=", ".join(f"{name} {number(v) if not isinstance(v, str) else v}" for name, v in evidence.mix.items()),
        history=_history(run),
        recall=evidence.recall,
        methods=[_method(m) for m in methods],
        slots=run.search.methods,
        axis_budget=", ".join(f"{axis} {slots}" for axis, slots in axes.items()) or "none",
        branches=[f"b{i}" for i in range(run.search.branches)],
        problems=list(problems),
    )
    return system_prompt(), _prefix(run, best), prompt


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
    return _prefix(run, best) + "\n" + render("planned", plan={"methods": methods})


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
    title = run.catalogue.get(method).title if run.catalogue.known(method) else method
    return render(
        "ablate",
        methods=plan.method_ids,
        method={"id": method, "title": title},
        language=run.language,
        source=source,
        unreadable=unreadable,
    )


def task_text(run: Run) -> str:
    """The task and the machine, as every prompt begins."""
    section = run.task.config.task
    tolerance = run.tolerance
    ceilings, device = run.ceilings, run.device
    spec = run.task.spec
    flags = " ".join([f"-std={spec.std}", *spec.flags, *(f"-D{k}={v}" for k, v in spec.define.items())])
    return render(
        "task",
        task={
            "name": section.name,
            "backend": run.task.backend.name,
            "declaration": _declaration(run),
            "parameters": _parameters(run),
            "shapes": section.shapes,
            "dims": list(section.dims),
            "atol": tolerance.atol,
            "rtol": tolerance.rtol,
            "precision": _PRECISION[section.precision],
            "threads": run.task.config.device.threads,
            "build": f"{run.task.backend.compile_line} {flags}",
            "libraries": list(section.allow.libraries),
        },
        device={
            "name": device.name,
            "arch": device.arch,
            "features": [f for f in device.features if f in _FEATURES],
            "caches": _caches(run),
        },
        ceilings={
            "flops": ", ".join(f"{name} {value / 1e9:.4g} GFLOP/s" for name, value in ceilings.flops.items()),
            "copy_rate": f"{ceilings.copy_bytes / 1e9:.4g} GB/s",
            "read_rate": f"{ceilings.read_bytes / 1e9:.4g} GB/s",
        },
    )


_FEATURES = ("sse4_2", "avx", "avx2", "fma", "f16c", "bmi2", "neon", "asimd", "sve")
_PRECISION = {
    "input": "that of the inputs' own types",
    "tf32": "TF32 or better",
    "any": "any that the tolerance admits",
}


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


def _declaration(run: Run) -> str:
    signature = run.task.signature
    inside = ", ".join(f"{p.type} {p.name}" for p in signature.parameters)
    return f"{signature.returns} solve({inside})"


def _parameters(run: Run) -> list[Mapping[str, str]]:
    rules = run.task.config.task.tensors or {}
    rows: list[Mapping[str, str]] = []
    for parameter, argument in zip(run.task.signature.parameters, run.task.problem.timed.arguments, strict=True):
        if isinstance(argument, Tensor):
            extents = (
                rules[argument.name].shape if argument.name in rules else ("as many elements as the dims ask for",)
            )
            row = {"role": argument.role, "shape": f"[{', '.join(map(str, extents))}]"}
        elif argument.name in run.task.config.task.dims:
            row = {"role": "dim", "shape": "a dim"}
        else:
            row = {"role": "scalar", "shape": str(argument.value)}
        rows.append({"name": parameter.name, "type": parameter.type, **row})
    return rows


def _caches(run: Run) -> str:
    device = run.device
    sizes = (("L1d", device.l1d_bytes), ("L2", device.l2_bytes), ("L3", device.l3_bytes))
    return ", ".join(f"{name} {size // 1024} KiB" for name, size in sizes if size is not None) or "unknown"


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
