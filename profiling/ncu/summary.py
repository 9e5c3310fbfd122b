"""All launches of one call together: a `ProfiledKernel` per kernel name, and one value per metric over all kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profiling.findings import ProfiledKernel
from profiling.ncu.pages import Launch

DURATION = "gpu__time_duration.sum"
_COUNTS = ("inst_executed", "thread_inst_executed", "thread_inst_executed_true")
_COUNT_FAMILIES = (
    "smsp__pcsamp_warps_issue_",
    "smsp__pcsamp_sample_count",
    "sass__inst_executed",
    "memory_l1_",
    "memory_l2_",
)


@dataclass(frozen=True, slots=True)
class _Part:
    metrics: Mapping[str, float]
    seconds: float | None
    times: int


def kernels_of(launches: Iterable[Launch]) -> tuple[ProfiledKernel, ...]:
    """Kernels by name, longest first; those without a time last, in the order of their first launch."""
    groups: dict[str, list[Launch]] = {}
    for launch in launches:
        groups.setdefault(launch.name, []).append(launch)
    kernels = [_kernel(name, members) for name, members in groups.items()]
    times = [kernel.time_ms for kernel in kernels if kernel.time_ms is not None]
    total = sum(times) if len(times) == len(kernels) else 0.0
    ordered = sorted(kernels, key=lambda k: -(k.time_ms or 0.0))
    return tuple(
        ProfiledKernel(k.name, k.launches, k.time_ms, _share(k.time_ms, total), k.grid, k.block, k.metrics)
        for k in ordered
    )


def overall(kernels: Sequence[ProfiledKernel]) -> dict[str, float]:
    """Every metric over all kernels of a call: counts and times added up, launch facts those of the longest kernel,
    anything else a mean weighted by duration over the kernels that have it."""
    return _combine([_Part(k.metrics, None if k.time_ms is None else k.time_ms / 1e3, 1) for k in kernels])


def _kernel(name: str, launches: list[Launch]) -> ProfiledKernel:
    parts = []
    for launch in launches:
        each = launch.metrics.get(DURATION)
        parts.append(_Part(launch.metrics, None if each is None else each * launch.invocations, launch.invocations))
    known = [part.seconds for part in parts if part.seconds is not None]
    first = launches[0]
    return ProfiledKernel(
        name=name,
        launches=sum(launch.invocations for launch in launches),
        time_ms=1e3 * sum(known) if len(known) == len(parts) else None,
        share=None,
        grid=first.grid,
        block=first.block,
        metrics=_combine(parts),
    )


def _share(time_ms: float | None, total_ms: float) -> float | None:
    return time_ms / total_ms if time_ms is not None and total_ms > 0 else None


def _combine(parts: list[_Part]) -> dict[str, float]:
    longest = max(parts, key=lambda part: part.seconds or 0.0, default=None)
    names = dict.fromkeys(name for part in parts for name in part.metrics)
    return {name: _one(name, parts, longest) for name in names}


def _one(name: str, parts: list[_Part], longest: _Part | None) -> float:
    having = [part for part in parts if name in part.metrics]
    if _adds_up(name):
        return sum(part.metrics[name] * part.times for part in having)
    if name.startswith(("launch__", "device__")) and longest is not None and name in longest.metrics:
        return longest.metrics[name]
    weights = [part.seconds for part in having if part.seconds]
    if len(weights) < len(having):  # a time is missing: each launch counts alike
        return sum(part.metrics[name] * part.times for part in having) / sum(part.times for part in having)
    weighted = sum(part.metrics[name] * weight for part, weight in zip(having, weights, strict=True))
    return weighted / sum(weights)


def _adds_up(name: str) -> bool:
    return (
        name.endswith(".sum")
        or name.startswith("gpu__time_duration.")
        or name in _COUNTS
        or name.startswith(_COUNT_FAMILIES)
    )
