"""Metrics of a GPU kernel from what Nsight Compute measured, the work and the ceilings. Pure; missing stays missing.

As on the CPU each metric is ranked by its *distance* from good, 0 to 1, by the table `RULES`: the value at which
nothing is left to gain (`best`) and the one beyond which it hardly gets worse (`worst`). Names are those of ncu's raw
page, so that plans can cite them and the catalogue's triggers find them; where versions differ, `ALTERNATIVES` lists
the others.

A raw number often says little by itself, so where more is known it is ranked by that:

- a stall reason by its share of the cycles between two instructions of a warp, and by how many issue slots stay empty;
- a hit rate by the traffic its misses cause over the least bytes of the work (a stream hits nothing and is perfect);
- an idle math pipe by how far arithmetic sets the floor (a copy needs no tensor core), unused bandwidth likewise;
- an occupancy limit only where it is the one that binds; access patterns by the bytes that go unused and by how
  much of the traffic is theirs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from profiling.ceilings import peak_bytes, peak_flops
from profiling.cpu_metrics import Rule, ratio, work_metrics
from profiling.findings import Ceilings, Metric, ProfiledKernel, Work
from profiling.gpu_rules import ALTERNATIVES, LATENCY, LIMITS, RULES, STALLS

SECTOR_BYTES = 32
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_MEMORY_UNITS = (
    "gpu__dram_throughput",
    "dram__throughput",
    "lts__throughput",
    "l1tex__throughput",
    "gpu__compute_memory_throughput",
)
_MATH_PIPES = (
    "sm__pipe_fma_cycles_active",
    "sm__inst_executed_pipe_fma",
    "sm__inst_executed_pipe_fma_type_fp16",
    "sm__pipe_alu_cycles_active",
    "sm__inst_executed_pipe_alu",
    "sm__pipe_fp16_cycles_active",
    "sm__inst_executed_pipe_fp16",
    "sm__pipe_fp64_cycles_active",
    "sm__inst_executed_pipe_fp64",
    "sm__inst_executed_pipe_xu",
    "sm__pipe_tensor_cycles_active",
    "sm__inst_executed_pipe_tensor",
)
_TENSOR_FAMILIES = ("sm__pipe_tensor_op_", "sm__pipe_tensor_type_", "sm__inst_executed_pipe_tensor_op_")
_EXCESS_TRAFFIC = Rule("memory", "ratio", "low", 1.1, 32, "Bytes moved over the least bytes of the work.", "log")


# What refills a cache level, for the metrics that only say how often it was needed.
_REFILLS = {
    "l1tex__t_sector_hit_rate.pct": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_xbar2l1tex_read_bytes.sum": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "lts__t_sector_hit_rate.pct": "dram__bytes_read.sum",
    "dram__bytes_read.sum": "dram__bytes_read.sum",
    "dram__bytes_write.sum": "dram__bytes_write.sum",
}
_ACCESS = re.compile(r"(?:per_sector|per_request_pipe_lsu)_mem_global_op_(ld|st)\.ratio$")


class Loads(NamedTuple):
    """How busy the busiest memory unit and the busiest math pipe were, 0-1; None where not measured."""

    memory: float | None
    compute: float | None


def gpu_loads(kernels: Sequence[ProfiledKernel]) -> Loads:
    """Loads of a call: of each kernel its busiest unit, then the mean over kernels weighted by duration.

    Of several metrics of one pipe the busiest counts (a kernel on the integer tensor path leaves the float one idle),
    and a metric that is missing takes no part.
    """
    weights = [kernel.time_ms for kernel in kernels if kernel.time_ms]
    even = len(weights) < len(kernels)
    pairs = [(1.0 if even else (kernel.time_ms or 0.0), kernel.metrics) for kernel in kernels]
    return Loads(
        _weighted([(weight, _busiest(metrics, _MEMORY_UNITS)) for weight, metrics in pairs]),
        _weighted([(weight, _busiest(metrics, _math_pipes(metrics))) for weight, metrics in pairs]),
    )


def gpu_metrics(
    values: Mapping[str, float], time_ms: float | None, work: Work, ceilings: Ceilings | None, dtype: str
) -> tuple[Metric, ...]:
    """Everything known of a call, as metrics with their distance.

    Args:
        values: raw-page name to value in base units, over all kernels of the call (`profiling.ncu.summary.overall`).
        time_ms: the call's time measured without a profiler; None when it is not known.
        work: what one call must do.
        ceilings: measured on this GPU; None when they are not known.
        dtype: the arithmetic that the operations are counted at.
    """
    known = {**values, **_derived(values)}
    context = _Context(known, work, *_floor_shares(work, ceilings, dtype))
    found = []
    if time_ms and ceilings is not None:
        found = [context.weighed(metric) for metric in work_metrics(time_ms, work, ceilings, dtype)]
    for name, rule in RULES.items():
        value = next((known[n] for n in (name, *ALTERNATIVES.get(name, ())) if n in known), None)
        if value is None or _says_nothing(name, value, known):
            continue
        value = min(value, 100.0) if rule.unit == "%" else value
        found.append(
            Metric(name, value, rule.unit, rule.axis, rule.good, context.distance(name, value, rule), rule.meaning)
        )
    return tuple(found)


def report_ceilings(values: Mapping[str, float]) -> Ceilings | None:
    """The chip's theoretical peaks at the clocks of the profile, as far as the raw page tells them; None without them.

    Memory: bytes per cycle at most, times its clock. float32: multiply-adds per cycle at most (counted as two), times
    the SMs' clock. They are above what any kernel reaches; measured ceilings are better.
    """
    memory = _product(values, "dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second")
    fma = _product(
        values, "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2", "sm__cycles_elapsed.avg.per_second"
    )
    if memory is None:
        return None
    flops = {} if fma is None else {"float32": fma}
    return Ceilings(memory, memory, None, flops, flops, memory, {"method": "theoretical, from the profile"})


def _product(values: Mapping[str, float], one: str, other: str) -> float | None:
    return values[one] * values[other] if one in values and other in values else None


class _Context(NamedTuple):
    """What a value is judged against: the other values, the work, and how far arithmetic and bytes set the floor."""

    known: Mapping[str, float]
    work: Work
    arithmetic: float
    bandwidth: float

    def weighed(self, metric: Metric) -> Metric:
        """A fraction of a peak that this work has no use for is not far from good."""
        weight = {"flops_fraction": self.arithmetic, "bandwidth_fraction": self.bandwidth}.get(metric.name, 1.0)
        return replace(metric, distance=metric.distance * weight)

    def distance(self, name: str, value: float, rule: Rule) -> float:
        """The rule's distance, or a better-founded one where more is known (see the module's docstring)."""
        if name in STALLS:
            return self._stall(value) if STALLS[name] else 0.0
        if name in LIMITS:
            return self._limit(name)
        if name in _REFILLS:
            return self._refill(name, value, rule)
        if rule.axis == "compute" and rule.good == "high" and rule.unit == "%":
            return rule.distance(value) * self.arithmetic
        if name == "launch__waves_per_multiprocessor":
            return 1.0 - value / math.ceil(value) if value > 0 else 1.0
        if (access := _ACCESS.search(name)) is not None:
            return self._access(access[1], value, rule)
        if name == "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum":
            share = ratio(value, self.known.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"))
            return _clamp(2 * share) if share is not None else 0.0 if value == 0 else 0.5
        if name.startswith("smsp__sass_inst_executed_op_local"):
            share = ratio(value, self.known.get("smsp__inst_executed.sum"))
            return rule.distance(value) if share is None else _clamp(20 * share)
        return rule.distance(value)

    def _stall(self, cycles: float) -> float:
        """Twice its share of a warp's latency, as far as issue slots stay empty: else another warp fills the wait."""
        reasons = [self.known[name] for name in STALLS if name in self.known]
        latency = self.known.get(LATENCY) or sum(reasons)
        share = ratio(cycles, latency) or 0.0
        issuing = self.known.get(f"smsp__issue_active{_ACTIVE}")
        empty = 0.5 if issuing is None else 1.0 - _clamp(issuing / 100.0)
        return _clamp(2 * share * empty)

    def _limit(self, name: str) -> float:
        """What occupancy lacks, for the limit that binds; 0 for the others."""
        limits = [self.known[n] for n in LIMITS.values() if n in self.known]
        own = self.known.get(LIMITS[name], math.inf)
        theoretical = self.known.get("sm__maximum_warps_per_active_cycle_pct")
        if not limits or own > min(limits) or theoretical is None:
            return 0.0
        return _clamp(1.0 - theoretical / 100.0)

    def _refill(self, name: str, value: float, rule: Rule) -> float:
        """By the bytes that came in from the level behind, over the least bytes of the work."""
        excess = ratio(_first(self.known, _REFILLS[name]), self.work.bytes)
        if excess is None:
            return rule.distance(value)
        by_traffic = _EXCESS_TRAFFIC.distance(excess)
        return min(by_traffic, rule.distance(value)) if rule.unit == "%" else by_traffic

    def _access(self, op: str, value: float, rule: Rule) -> float:
        """By the bytes of a sector that go unused, and by the share that loads or stores have in the sectors."""
        used = self.known.get(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio")
        unused = rule.distance(value) if used is None else 1.0 - _clamp(used / SECTOR_BYTES)
        sectors = {o: self.known.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{o}.sum") for o in ("ld", "st")}
        if None in sectors.values():
            return unused
        return unused * (ratio(sectors[op], sum(n or 0.0 for n in sectors.values())) or 0.0)


def _derived(values: Mapping[str, float]) -> dict[str, float]:
    """Ratios that ncu's sections print and its raw page may leave out, from their parts."""
    found: dict[str, float | None] = {}
    for op in ("ld", "st"):
        sectors = values.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum")
        requests = values.get(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum")
        found[f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{op}.ratio"] = ratio(sectors, requests)
    found["derived__smsp__inst_executed_op_branch_pct"] = ratio(
        values.get("smsp__inst_executed_op_branch.sum"), values.get("smsp__inst_executed.sum")
    )
    elapsed = values.get(f"l1tex__throughput{_ACTIVE}")
    if elapsed is not None:
        found[f"l1tex__throughput{_ELAPSED}"] = elapsed * _active_share(values)
    return {name: value for name, value in found.items() if value is not None and name not in values}


def _says_nothing(name: str, value: float, known: Mapping[str, float]) -> bool:
    """Whether a value adds nothing: a 0 because there was no branch or access to count, a maximum of what is shown."""
    if name == f"gpu__compute_memory_throughput{_ELAPSED}":
        return all(f"{unit}{_ELAPSED}" in known for unit in ("lts__throughput", "l1tex__throughput"))
    if value != 0:
        return False
    if name == "smsp__sass_average_branch_targets_threads_uniform.pct":
        return True
    if name.startswith("smsp__sass_average_data_bytes_per_sector"):
        return True
    return name.startswith("lts__t_sector_hit_rate") and known.get("lts__t_sectors.sum") == 0


def _floor_shares(work: Work, ceilings: Ceilings | None, dtype: str) -> tuple[float, float]:
    """How far arithmetic and bytes set the floor: each one's floor over the higher. Unknown takes no side."""
    rate = None if ceilings is None else peak_flops(ceilings, dtype)
    if ceilings is None or rate is None or work.flops is None or work.bytes is None:
        return 0.5, 0.5
    by_flops, by_bytes = work.flops / rate, work.bytes / peak_bytes(ceilings)
    most = max(by_flops, by_bytes)
    return (by_flops / most, by_bytes / most) if most > 0 else (0.5, 0.5)


def _math_pipes(metrics: Mapping[str, float]) -> tuple[str, ...]:
    stems = {name.split(".avg.pct_of_peak_sustained_")[0] for name in metrics if name.startswith(_TENSOR_FAMILIES)}
    return (*_MATH_PIPES, *sorted(stems))


def _busiest(metrics: Mapping[str, float], stems: Sequence[str]) -> float | None:
    """The highest load of the units, of the whole of the kernel's time; a share of active cycles is scaled to it."""
    found = []
    for stem in stems:
        if (percent := metrics.get(f"{stem}{_ELAPSED}")) is not None:
            found.append(_clamp(percent / 100.0))
        elif (percent := metrics.get(f"{stem}{_ACTIVE}")) is not None:
            found.append(_clamp(percent / 100.0 * _active_share(metrics)))
    return max(found, default=None)


def _active_share(metrics: Mapping[str, float]) -> float:
    """Active over elapsed cycles of the SMs; 1 where it was not measured, as for a kernel that fills the GPU."""
    active, elapsed = metrics.get("sm__cycles_active.avg"), metrics.get("sm__cycles_elapsed.avg")
    if elapsed is None:
        elapsed = metrics.get("gpc__cycles_elapsed.max")
    share = ratio(active, elapsed)
    return 1.0 if share is None else _clamp(share)


def _weighted(loads: Sequence[tuple[float, float | None]]) -> float | None:
    known = [(weight, load) for weight, load in loads if load is not None]
    total = sum(weight for weight, _ in known)
    return sum(weight * load for weight, load in known) / total if total > 0 else None


def _first(known: Mapping[str, float], name: str) -> float | None:
    return next((known[n] for n in (name, *ALTERNATIVES.get(name, ())) if n in known), None)


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))
