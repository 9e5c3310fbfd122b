"""What the prompts are told of a profile: metrics, device kernels, the compiler's figures and the profiler's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.types import KernelResources
from profiling.findings import Metric, Profile, ProfiledKernel, RuleFinding

_MOST_RULES = 6
_LONGEST_RULE = 300
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
