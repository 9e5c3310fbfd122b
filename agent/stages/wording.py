"""What the prompts are told: plain data for the templates, drawn from the run. Dims never appear as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.events import Attributed, BranchWritten, ChampionDecided, Evaluated, IterationEnded, PlanDecided, Sanitized
from agent.llm.prices import estimate_tokens
from agent.plan import Plan
from agent.run import Kernel, Run
from agent.stages.evidence import Evidence
from agent.task import Task
from backends.types import KernelResources, Rejected
from memory.telling import tell
from profiling.types import Axis, Ceilings, Metric, Profile, ProfiledKernel, RuleFinding, Tensor, Tolerance
from prompts.catalogue import Catalogue, Method, switch_name
from prompts.renderer import number, render

if TYPE_CHECKING:
    from profiling.gpu_device import GpuFacts

_LONGEST_FAILURE = 300
_MOST_RULES = 6
_MOST_FINDINGS = 6
_LONGEST_RULE = 300


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


def task_text(run: Run) -> str:
    """The task and the machine, as every prompt begins."""
    machine = _cpu(run) if run.gpu is None else gpu_values(run.gpu)
    return render(
        "task",
        task=task_values(run.task, run.tolerance, None if run.gpu is None else run.gpu.arch),
        device=machine,
        ceilings=ceiling_values(run.ceilings, "GFLOP/s" if run.gpu is None else "TFLOP/s"),
    )


def task_values(task: Task, tolerance: Tolerance, arch: str | None) -> Mapping[str, object]:
    """What the `task` template tells of a task; `arch` is the GPU's architecture, None on a CPU."""
    section, spec = task.config.task, task.spec
    name = task.backend.name
    flags = [f"-std={spec.std}", *spec.flags, *(f"-D{k}={v}" for k, v in spec.define.items())]
    return {
        "name": section.name,
        "backend": _TITLES.get(name, name),
        "contract": "cuda" if name == "cutlass" else name,
        "declaration": _declaration(task),
        "parameters": _parameters(task),
        "zeroed": [t.name for t in task.problem.timed.tensors if t.zeroed],
        "unordered": [t.name for t in task.problem.timed.tensors if t.unordered],
        "ties": {t.name: t.ties for t in task.problem.timed.tensors if t.ties is not None},
        "shapes": section.shapes,
        "dims": list(section.dims),
        "atol": tolerance.atol,
        "rtol": tolerance.rtol,
        "precision": (_PRECISION if arch is None else _GPU_PRECISION)[section.precision],
        "threads": task.config.device.threads,
        "build": task.backend.compile_line if name == "triton" else " ".join([task.backend.compile_line, *flags]),
        "libraries": list(section.allow.libraries),
        "arch": arch,
        "features": None if arch is None else _OWN_INSTRUCTIONS.get(arch.rstrip("af")),
    }


def gpu_values(gpu: GpuFacts) -> Mapping[str, object]:
    """What the `task` template tells of a GPU; facts that could not be read are left out."""
    facts = (
        ("{} SMs", gpu.sm_count, 1),
        ("{} KiB of shared memory per SM", gpu.shared_per_sm_bytes, 1024),
        ("at most {} KiB of it per block", gpu.shared_per_block_bytes, 1024),
        ("{} registers per SM", gpu.registers_per_sm, 1),
        ("{} threads per SM", gpu.threads_per_sm, 1),
        ("{} MiB of L2", gpu.l2_bytes, 1 << 20),
        ("{} GiB of memory", gpu.memory_bytes, 1 << 30),
    )
    return {
        "kind": "gpu",
        "name": gpu.name,
        "arch": gpu.arch,
        "facts": [text.format(value // unit) for text, value, unit in facts if value is not None],
    }


def ceiling_values(ceilings: Ceilings, unit: str) -> Mapping[str, str]:
    """Measured ceilings for the prompt; `unit` is `GFLOP/s` or `TFLOP/s`."""
    size = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}[unit]
    return {
        "flops": ", ".join(f"{name} {value / size:.4g} {unit}" for name, value in ceilings.flops.items()),
        "copy_rate": f"{ceilings.copy_bytes / 1e9:.4g} GB/s",
        "read_rate": f"{ceilings.read_bytes / 1e9:.4g} GB/s",
    }


def profile_values(
    profile: Profile, metrics: Sequence[Metric], resources: Sequence[KernelResources]
) -> Mapping[str, object]:
    """What the `evidence` template tells of a profile: its leading metrics, kernels, compiler figures and rules."""
    return {
        "source": profile.source,
        "level": profile.level,
        "note": profile.note,
        "metrics": list(metrics),
        "kernels": [_kernel(k) for k in profile.kernels],
        "resources": [_resources(r) for r in resources],
        "rules": rule_lines(profile.rules, several=len(profile.kernels) > 1),
    }


def _kernel(kernel: ProfiledKernel) -> Mapping[str, object]:
    # Neither the grid nor its size: where any shape must work, it would tell the one that is timed.
    return {
        "name": _short(kernel.name),
        "launches": kernel.launches,
        "time_ms": kernel.time_ms,
        "share": "not measured" if kernel.share is None else f"{kernel.share:.0%}",
        "block": "not told" if kernel.block is None else "x".join(map(str, kernel.block)),
        "cells": [
            "not measured" if name not in kernel.metrics else f"{kernel.metrics[name]:.3g}{unit}"
            for name, unit in _KERNEL_METRICS
        ],
    }


def _resources(kernel: KernelResources) -> str:
    """Such as `gemm_kernel: 32 registers, 0 bytes spilled, 0 bytes of static shared memory`."""
    spilled = [b for b in (kernel.spill_store_bytes, kernel.spill_load_bytes) if b is not None]
    told = (
        ("{} registers per thread", kernel.registers),
        ("{} bytes spilled per thread", sum(spilled) if spilled else None),
        ("{} bytes of stack", kernel.stack_bytes or None),
        ("{} bytes of static shared memory per block", kernel.shared_bytes),
    )
    return f"{_short(kernel.name)}: " + (", ".join(t.format(v) for t, v in told if v is not None) or "nothing told")


def rule_lines(rules: Sequence[RuleFinding], several: bool) -> list[str]:
    """The rules that estimate a gain, largest first; the kernel is named where there are `several`."""
    gains = [r for r in rules if r.kind == "OPT" and r.speedup_percent is not None and r.rule not in _IDLE_RULES]
    lines = []
    for rule in sorted(gains, key=lambda r: -(r.speedup_percent or 0.0))[:_MOST_RULES]:
        text = " ".join(rule.text.split())
        text = text if len(text) <= _LONGEST_RULE else text[:_LONGEST_RULE].rsplit(" ", 1)[0] + " …"
        of = f" of {_short(rule.kernel)}" if several else ""
        where = "of the part it speaks of" if rule.speedup_kind == "local" else "of the kernel"
        lines.append(f"{rule.rule}{of}, {rule.speedup_percent:.3g} % {where}: {text}")
    return lines


def _short(name: str) -> str:
    """A kernel's name without its arguments, namespaces that say nothing, and what a cell of a table cannot hold."""
    return name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").split("(", 1)[0].replace("|", "/")


# What a kernel's row shows, in the order of the template's columns, each with its unit.
_KERNEL_METRICS = (
    ("sm__warps_active.avg.pct_of_peak_sustained_active", " %"),
    ("launch__waves_per_multiprocessor", ""),
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", " %"),
    ("l1tex__throughput.avg.pct_of_peak_sustained_active", " %"),
    ("lts__throughput.avg.pct_of_peak_sustained_elapsed", " %"),
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", " %"),
)
# Compressible memory is for whoever allocates it; a kernel gets its buffers.
_IDLE_RULES = {"MemoryL2Compression"}
# What is compiled only where a target's `a` features are asked for; the backend asks when a source uses it.
_OWN_INSTRUCTIONS = {
    "sm_90": "wgmma, setmaxnreg",
    "sm_100": "tcgen05, setmaxnreg",
    "sm_103": "tcgen05, setmaxnreg",
    "sm_110": "tcgen05, setmaxnreg",
    "sm_120": "setmaxnreg, block-scaled mma",
    "sm_121": "setmaxnreg, block-scaled mma",
}
_TITLES = {"cuda": "CUDA", "cutlass": "CUTLASS", "triton": "Triton"}
_FEATURES = ("sse4_2", "avx", "avx2", "fma", "f16c", "bmi2", "neon", "asimd", "sve")
_PRECISION = {
    "input": "that of the inputs' own types",
    "tf32": "TF32 or better",
    "any": "any that the tolerance admits",
}
_GPU_PRECISION = {
    "input": "products of the inputs' own types, summed in float32 or wider; for float32 that is as exact as "
    "float32 FMA, so plain TF32, bf16 or fp16 products fail (split ones such as 3xTF32 may pass)",
    "tf32": "TF32 products or better, summed in float32 or wider",
    "any": "any that the tolerance admits",
}


def _cpu(run: Run) -> Mapping[str, object]:
    return {
        "kind": "cpu",
        "name": run.device.name,
        "arch": run.device.arch,
        "features": [f for f in run.device.features if f in _FEATURES],
        "caches": _caches(run),
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


def _declaration(task: Task) -> str:
    signature = task.signature
    if task.backend.name == "triton":
        return f"def run_kernel({', '.join(p.name for p in signature.parameters)}): ..."
    inside = ", ".join(f"{p.type} {p.name}" for p in signature.parameters)
    return f"{signature.returns} solve({inside})"


def _parameters(task: Task) -> list[Mapping[str, str]]:
    section = task.config.task
    rows: list[Mapping[str, str]] = []
    for parameter, argument in zip(task.signature.parameters, task.problem.timed.arguments, strict=True):
        if isinstance(argument, Tensor):
            row = {"role": argument.role, "shape": _shape(task, argument)}
        elif argument.name in section.dims:
            row = {"role": "dim", "shape": "a dim"}
        else:
            row = {"role": "scalar", "shape": str(argument.value)}
        # A Triton parameter's own type says no more than `tensor`.
        kind = f"{argument.dtype} tensor" if parameter.type == "tensor" else parameter.type
        rows.append({"name": parameter.name, "type": kind, **row})
    return rows


def _shape(task: Task, tensor: Tensor) -> str:
    """The shape by dims, never by their values."""
    section = task.config.task
    rules = section.tensors or {}
    if tensor.name in rules:
        return f"[{', '.join(map(str, rules[tensor.name].shape))}]"
    if task.backend.name != "triton":
        return "[as many elements as the dims ask for]"
    # The baseline's `setup` made it: an extent is named where one dim alone has its value.
    names = [[name for name, value in section.dims.items() if value == extent] for extent in tensor.shape]
    if all(len(found) == 1 for found in names):
        return f"[{', '.join(found[0] for found in names)}]"
    return f"{len(tensor.shape)} axes, as the original's setup makes it"


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
