"""Metrics of a CPU kernel from its counts, its work and its instruction mix. Pure; a missing count gives no metric.

Each metric is ranked by its *distance* from good, 0 to 1. The rules are the table `RULES`: the value at which nothing
is left to gain (`best`, distance 0) and the one beyond which it hardly gets worse (`worst`, distance 1), on a linear or
a logarithmic scale. Where a raw rate says little by itself and the work is known, a better-founded quantity ranks it: a
streaming loop misses the first-level cache on every other wide load and is still perfect, so misses are ranked by the
traffic they cause over the least traffic of the work, instructions by how many a perfect kernel would need, and
mispredictions by how many there are per thousand instructions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from profiling.ceilings import peak_bytes, peak_flops
from profiling.findings import Axis, Ceilings, Metric, Work

VECTOR_BYTES = 32  # kernels are built for x86-64-v3: AVX2 and FMA
_ELEMENT_BYTES = {"float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class Counts:
    """Events of one call of `solve`, its process's start-up taken off. None is an event that was not counted.

    `llc_refs` are accesses that missed the first level (cachegrind) or reached the last one (perf).
    """

    instructions: float | None = None
    cycles: float | None = None
    data_refs: float | None = None
    l1_misses: float | None = None
    llc_refs: float | None = None
    llc_misses: float | None = None
    branches: float | None = None
    mispredicts: float | None = None
    line_bytes: int = 64


@dataclass(frozen=True, slots=True)
class Rule:
    """How one metric is read: its axis, unit, direction, the two ends of its distance, and what it means."""

    axis: Axis
    unit: str
    good: Literal["high", "low"]
    best: float
    worst: float
    meaning: str
    scale: Literal["linear", "log"] = "linear"

    def distance(self, value: float) -> float:
        """0 at `best` or better, 1 at `worst` or worse."""
        if self.scale == "log":
            tiny = 1e-12
            position = math.log(max(value, tiny) / self.best) / math.log(self.worst / self.best)
        else:
            position = (value - self.best) / (self.worst - self.best)
        return min(1.0, max(0.0, position))


RULES: Mapping[str, Rule] = {
    "roofline_fraction": Rule(
        "compute", "ratio", "high", 1, 0, "Least time the measured ceilings allow, over the kernel's time."
    ),
    "flops_fraction": Rule(
        "compute", "ratio", "high", 1, 0, "Floating-point rate over these cores' measured multiply-add peak."
    ),
    "bandwidth_fraction": Rule(
        "memory", "ratio", "high", 1, 0, "Least bytes of the work per second, over measured memory bandwidth."
    ),
    "dram_fraction": Rule(
        "memory", "ratio", "low", 0, 1, "Bytes that missed the last-level cache per second, over memory bandwidth."
    ),
    "cache_fill_fraction": Rule(
        "memory", "ratio", "low", 0, 1, "Bytes missing the first-level cache per second, over second-level bandwidth."
    ),
    "instructions_per_flop": Rule(
        "compute", "inst/flop", "low", 0.1, 2, "Instructions executed per floating-point operation of the work.", "log"
    ),
    "instructions_per_byte": Rule(
        "latency", "inst/byte", "low", 0.05, 2, "Instructions executed for each byte the work must move.", "log"
    ),
    "l1_miss_rate": Rule(
        "memory", "ratio", "low", 0.02, 0.5, "First-level data-cache misses over data accesses."
    ),
    "l1_misses_per_kinst": Rule(
        "memory", "1/kinst", "low", 5, 250, "First-level data-cache misses per thousand instructions."
    ),
    "llc_miss_rate": Rule(
        "memory", "ratio", "low", 0.05, 0.8, "Last-level cache misses over accesses that got past the levels before it."
    ),
    "llc_miss_bytes_ratio": Rule(
        "memory", "ratio", "low", 1.1, 16, "Bytes missing the last-level cache over the least bytes of the work.", "log"
    ),
    "branch_mispredict_rate": Rule(
        "latency", "ratio", "low", 0.005, 0.1, "Mispredicted branches over branches."
    ),
    "branches_per_kinst": Rule(
        "latency", "1/kinst", "low", 40, 250, "Branches per thousand instructions: high where loops are short."
    ),
    "ipc": Rule(
        "latency", "inst/cycle", "high", 3, 0.5, "Instructions per cycle: low where they wait for each other."
    ),
    "vector_width_share": Rule(
        "compute", "ratio", "high", 1, 0.125, "Mean width of floating-point instructions in the loops over 256 bits."
    ),
    "scalar_float_in_loops": Rule(
        "compute", "inst", "low", 0, 1, "Scalar floating-point instructions in the kernel's loops."
    ),
    "fma_share": Rule(
        "compute", "ratio", "high", 0.4, 0, "Fused multiply-adds over floating-point instructions in the loops."
    ),
    "divisions_in_loops": Rule(
        "compute", "inst", "low", 0, 4, "Divisions and square roots in the kernel's loops, worth many multiplies each."
    ),
    "gathers_in_loops": Rule(
        "memory", "inst", "low", 0, 4, "Gathers in the kernel's loops: one access per element."
    ),
    "calls_in_loops": Rule(
        "latency", "inst", "low", 0, 2, "Calls left in the kernel's loops: not inlined, not vectorised."
    ),
}  # fmt: skip

# Ranking quantities that are not shown themselves.
_EXCESS_INSTRUCTIONS = Rule("compute", "ratio", "low", 1.5, 48, "Instructions over a perfect kernel's.", "log")
_EXCESS_TRAFFIC = Rule("memory", "ratio", "low", 1.1, 32, "First-level refills over the least bytes.", "log")
_MISPREDICTS_PER_KINST = Rule("latency", "1/kinst", "low", 0.1, 10, "Mispredictions per 1000 instructions.", "log")


def metric(name: str, value: float, *, axis: Axis | None = None, distance: float | None = None) -> Metric:
    """A `Metric` by its rule; `axis` and `distance` replace the rule's where more is known than the value."""
    rule = RULES[name]
    return Metric(
        name=name,
        value=value,
        unit=rule.unit,
        axis=axis or rule.axis,
        good=rule.good,
        distance=rule.distance(value) if distance is None else distance,
        meaning=rule.meaning,
    )


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """The quotient, None where either is missing or nothing was counted below the line."""
    if numerator is None or denominator is None or denominator <= 0:
        return None
    return numerator / denominator


def work_metrics(time_ms: float, work: Work, ceilings: Ceilings, dtype: str) -> tuple[Metric, ...]:
    """What time and counted work alone say: fractions of the roofline, of the arithmetic peak and of bandwidth."""
    seconds = time_ms / 1e3
    flops_fraction = ratio(ratio(work.flops, peak_flops(ceilings, dtype)), seconds)
    bandwidth_fraction = ratio(ratio(work.bytes, peak_bytes(ceilings)), seconds)
    fractions = [f for f in (flops_fraction, bandwidth_fraction) if f is not None]
    found: list[Metric] = []
    if fractions:
        leading: Axis = "memory" if (bandwidth_fraction or 0) >= (flops_fraction or 0) else "compute"
        found.append(metric("roofline_fraction", max(fractions), axis=leading))
    if flops_fraction is not None:
        found.append(metric("flops_fraction", flops_fraction))
    if bandwidth_fraction is not None:
        found.append(metric("bandwidth_fraction", bandwidth_fraction))
    return tuple(found)


def count_metrics(counts: Counts, time_ms: float, work: Work, ceilings: Ceilings, dtype: str) -> tuple[Metric, ...]:
    """What counted events say, alone and against the work."""
    seconds = time_ms / 1e3
    kinst = None if counts.instructions is None else counts.instructions / 1e3
    l1_bytes = None if counts.l1_misses is None else counts.l1_misses * counts.line_bytes
    llc_bytes = None if counts.llc_misses is None else counts.llc_misses * counts.line_bytes
    excess = _distance(ratio(counts.instructions, _least_instructions(work, dtype)), _EXCESS_INSTRUCTIONS)
    refill = _distance(ratio(l1_bytes, work.bytes), _EXCESS_TRAFFIC)
    spill = _distance(ratio(llc_bytes, work.bytes), RULES["llc_miss_bytes_ratio"])
    mispredicted = _distance(ratio(counts.mispredicts, kinst), _MISPREDICTS_PER_KINST)
    rows: tuple[tuple[str, float | None, float | None], ...] = (
        ("dram_fraction", ratio(ratio(llc_bytes, peak_bytes(ceilings)), seconds), None),
        ("cache_fill_fraction", ratio(ratio(l1_bytes, ceilings.cache_bytes), seconds), None),
        ("instructions_per_flop", ratio(counts.instructions, work.flops), excess),
        ("instructions_per_byte", ratio(counts.instructions, work.bytes), excess),
        ("l1_miss_rate", ratio(counts.l1_misses, counts.data_refs), refill),
        ("l1_misses_per_kinst", ratio(counts.l1_misses, kinst), refill),
        ("llc_miss_rate", ratio(counts.llc_misses, counts.llc_refs), spill),
        ("llc_miss_bytes_ratio", ratio(llc_bytes, work.bytes), spill),
        ("branch_mispredict_rate", ratio(counts.mispredicts, counts.branches), mispredicted),
        ("branches_per_kinst", ratio(counts.branches, kinst), None),
        ("ipc", ratio(counts.instructions, counts.cycles), None),
    )
    return tuple(metric(name, value, distance=by) for name, value, by in rows if value is not None)


def mix_metrics(instruction_mix: Mapping[str, int | float | str] | None, dtype: str) -> tuple[Metric, ...]:
    """What the instructions in the kernel's loops say.

    Args:
        instruction_mix: counts in loops from the disassembly: `scalar_float`, `vector_128`, `vector_256`, `vector_512`
            (floating-point instructions by width), `fma`, `divisions`, `gathers`, `calls_in_loops`. An absent key was
            not counted; others are ignored.
        dtype: the arithmetic, for the width of a scalar instruction.
    """
    mix = {name: count for name, count in (instruction_mix or {}).items() if not isinstance(count, str)}
    widths = [mix.get(key) for key in ("scalar_float", "vector_128", "vector_256", "vector_512")]
    known = [count for count in widths if count is not None]
    floats = sum(known) if len(known) == len(widths) else None
    found: list[Metric] = []
    if floats:
        bits = (8 * _ELEMENT_BYTES.get(dtype, 4), 128, 256, 512)
        mean = sum(count * width for count, width in zip(known, bits, strict=True)) / floats
        found.append(metric("vector_width_share", mean / (8 * VECTOR_BYTES)))
        if "fma" in mix:
            found.append(metric("fma_share", mix["fma"] / floats))
    if "scalar_float" in mix:
        share = ratio(mix["scalar_float"], floats)
        found.append(metric("scalar_float_in_loops", mix["scalar_float"], distance=share))
    for key, name in (
        ("divisions", "divisions_in_loops"),
        ("gathers", "gathers_in_loops"),
        ("calls_in_loops", "calls_in_loops"),
    ):
        if key in mix:
            found.append(metric(name, mix[key]))
    return tuple(found)


def _distance(value: float | None, rule: Rule) -> float | None:
    return None if value is None else rule.distance(value)


def _least_instructions(work: Work, dtype: str) -> float | None:
    """Instructions of a perfect kernel: one per full-width multiply-add or per full-width access, whichever is more."""
    lanes = VECTOR_BYTES // _ELEMENT_BYTES.get(dtype, 4)
    needs = []
    if work.flops is not None:
        needs.append(work.flops / (2 * lanes))
    if work.bytes is not None:
        needs.append(work.bytes / VECTOR_BYTES)
    return max(needs, default=None)
