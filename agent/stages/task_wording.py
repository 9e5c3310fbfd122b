"""What the prompts are told of the task and the machine. Dims never appear as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent.run import Run
from agent.task import Task
from profiling.findings import Ceilings
from profiling.types import Tensor, Tolerance
from prompts.renderer import render

if TYPE_CHECKING:
    from profiling.gpu_device import GpuFacts

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


def _cpu(run: Run) -> Mapping[str, object]:
    return {
        "kind": "cpu",
        "name": run.device.name,
        "arch": run.device.arch,
        "features": [f for f in run.device.features if f in _FEATURES],
        "caches": _caches(run),
    }


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
