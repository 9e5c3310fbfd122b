"""What was found of kernels, as everything above the harness sees it. Times in ms, sizes in bytes; missing is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiling.types import Tolerance

Verdict = Literal["pass", "fail", "suspect", "error", "unverified"]
Axis = Literal["compute", "memory", "latency"]
AXES: tuple[Axis, ...] = ("compute", "memory", "latency")


@dataclass(frozen=True, slots=True)
class CaseCheck:
    """How one call was judged. Errors are None when they could not be computed (crash, missing output).

    Attributes:
        dims: the case's dims.
        distribution: the input distribution.
        passed: whether every output of the call is right.
        reason: None, or one line: tensor, first wrong index, both values; guard or input damage; crash; timeout.
        max_abs_error: largest elementwise error over the outputs.
        relative_norm_error: largest ||out - ref|| / ||ref|| over the outputs.
        secret: whether the dims are to be told in no reason.
    """

    dims: Mapping[str, int]
    distribution: str
    passed: bool
    reason: str | None
    max_abs_error: float | None
    relative_norm_error: float | None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a GPU fared as a call ended. None is what could not be read.

    Attributes:
        sm_clock_mhz: of the multiprocessors.
        temperature_c: of the chip.
        power_w: drawn.
        held_back: whether heat or the hardware's power brake slowed it. A power cap does not count: under it a large
            kernel is in its steady state.
        shared: whether it worked for somebody else just before the call: another process, or what a kernel left behind.
    """

    sm_clock_mhz: float | None
    temperature_c: int | None
    power_w: float | None
    held_back: bool | None
    shared: bool | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one kernel on the timed case, less the same for an empty `solve`.

    Attributes:
        median_ms: median of `samples_ms`.
        iqr_ms: interquartile range of `samples_ms`.
        samples_ms: raw samples, the worker's own clock, one per timed call.
        overhead_ms: what an empty `solve` takes on that clock (already taken off).
        outside_ms: time per call by the controller's clock (slope of N and 2N calls), or None.
        l2: `cold` or `hot`.
        event_ms: on a GPU the median up to where the default stream ended, less the same for an empty `solve`: work on
            other streams is not in it. On a CPU the median again.
        conditions: on a GPU, how it fared at each sample.
        disturbed: samples that were dropped since heat or the power brake slowed the GPU, or it was shared.
    """

    median_ms: float
    iqr_ms: float
    samples_ms: tuple[float, ...]
    overhead_ms: float
    outside_ms: float | None
    l2: Literal["cold", "hot"]
    event_ms: float | None = None
    conditions: tuple[Conditions | None, ...] = ()
    disturbed: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One kernel verified and timed.

    `pass` needs correctness and timing; `suspect` (times that disagree or beat the floor) never wins; `error` is a
    worker that could not be run for a reason outside the kernel; `unverified` is a task without a reference.
    """

    verdict: Verdict
    reason: str | None
    checks: tuple[CaseCheck, ...]
    timing: Timing | None
    kind: Literal["evaluation"] = "evaluation"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Interleaved A/B of two kernels: fresh worker pairs, ABBA or BAAB blocks, equal inputs.

    Attributes:
        speedup: exp(median of log(time_a / time_b)): how many times as fast b is as a.
        low, high: bootstrap 95% interval of `speedup`, resampling workers, then blocks: of the worker's clock and of
            the outside one, the two together.
        a_ms, b_ms: medians.
        delta_ms: median of paired time_a - time_b; `delta_low_ms`, `delta_high_ms` its 95% interval, made alike.
        log_ratios: per worker pair, the log-ratio of each block, by the worker's clock.
        disturbed: blocks that were dropped since heat or the power brake slowed the GPU in them, or it was shared.
        batch: calls of a batch, where `speedup`, `low` and `high` are those of batches of short calls; 1 where they are
            of single calls, as everything else is.

    Both kernels were right in every timed call; where one was not, a comparison is a `Rejected` instead.
    """

    speedup: float
    low: float
    high: float
    a_ms: float
    b_ms: float
    delta_ms: float
    delta_low_ms: float
    delta_high_ms: float
    log_ratios: tuple[tuple[float, ...], ...]
    disturbed: int = 0
    batch: int = 1
    kind: Literal["comparison"] = "comparison"


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """What the task's own test at start-up found.

    Attributes:
        rejected: names of the wrong answers (`zeros`, `constant`, `input copy`, `half`) that were rejected, as must be.
        dropped_checks: dims of extra cases that the baseline itself fails, with the reason; they are left out.
        reference_ms: time of the reference in its own dtype on this machine, None when it cannot be timed.
        flops, bytes: from the reference's `flops(**dims)` and `bytes(**dims)`, None when it has none.
        tolerance: the one in force.
    """

    rejected: tuple[str, ...]
    dropped_checks: tuple[tuple[Mapping[str, int], str], ...]
    reference_ms: float | None
    flops: float | None
    bytes: float | None
    tolerance: Tolerance | None


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured value that says something about the kernel.

    Attributes:
        name: as the tool names it.
        value: in `unit`.
        unit: `%`, `inst`, `byte/s`, `ratio` …
        axis: which axis it speaks for.
        good: whether high or low is good.
        distance: 0 (good) to 1 (as bad as can be), by which metrics are ranked.
        meaning: one short sentence.
    """

    name: str
    value: float
    unit: str
    axis: Axis
    good: Literal["high", "low"]
    distance: float
    meaning: str


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """What one of Nsight Compute's own rules says of a kernel.

    Attributes:
        kernel: the kernel it speaks of.
        rule: the rule's name as ncu prints it (`UncoalescedGlobalAccess`).
        kind: `OPT` (what could be gained), `INF` or `WRN`.
        text: what it says.
        speedup_kind: whether the estimate is of the whole kernel (`global`) or of the part it speaks of (`local`).
        speedup_percent: ncu's estimate, None where it gives none.
    """

    kernel: str
    rule: str
    kind: str
    text: str
    speedup_kind: Literal["global", "local"] | None = None
    speedup_percent: float | None = None


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """One device kernel of a profiled call, all launches of it together.

    Attributes:
        name: as ncu prints it, arguments included.
        launches: how many of them there were.
        time_ms: GPU time of all launches together, None if not measured.
        share: its part of the call's GPU time, 0-1; None if not measured.
        grid, block: of its first launch, None if not told.
        metrics: name to value in base units (s, byte, byte/s, hz, %, inst …); a missing one is not there. Over several
            launches and kernels ratios are means weighted by duration, counts and times are sums.
    """

    name: str
    launches: int
    time_ms: float | None
    share: float | None
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Profile:
    """Evidence about one kernel.

    Attributes:
        source: the tool the counters came from.
        level: `full` or `targeted`; `degraded` when only counted work was to be had.
        metrics: all metrics.
        note: what the numbers cover (dims profiled, what is missing and why).
        kernels: on a GPU, the device kernels that one call launched, longest first.
        rules: on a GPU, what ncu's rules say, largest estimate first.
    """

    source: Literal["perf", "cachegrind", "counted", "ncu"]
    level: Literal["full", "targeted", "degraded"]
    metrics: tuple[Metric, ...]
    note: str
    kernels: tuple[ProfiledKernel, ...] = ()
    rules: tuple[RuleFinding, ...] = ()

    def value(self, name: str) -> float | None:
        """The value of a metric by name, None when it is missing."""
        return next((m.value for m in self.metrics if m.name == name), None)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this device can do, measured on it. Rates are per second, for the cores the task may use.

    Attributes:
        copy_bytes: copy bandwidth, bytes read plus bytes written.
        read_bytes: read-only bandwidth.
        cache_bytes: read bandwidth of the level that refills the first-level cache, None if not measured.
        flops: by arithmetic (`float32`, `float64`, `tf32` …), FMA counted as two.
        theoretical_flops, theoretical_bytes: above any honest measurement (clock x width x pipes, or a wide margin
            over the measured rate), for the `suspect` floor.
        provenance: device id, cores, method, date, tool versions.
    """

    copy_bytes: float
    read_bytes: float
    cache_bytes: float | None
    flops: Mapping[str, float]
    theoretical_flops: Mapping[str, float]
    theoretical_bytes: float
    provenance: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Work:
    """What one call must do at the timed dims: floating-point operations (None: unknown) and least bytes moved."""

    flops: float | None
    bytes: float | None


@dataclass(frozen=True, slots=True)
class Headroom:
    """Roofline gap of one kernel split over the three axes (each 0-1).

    Attributes:
        time_ms: the kernel's time.
        floor_ms: the least time measured ceilings allow, None when no work is known.
        gap: 1 - floor/time.
        compute, memory, latency: share of the gap on each axis.
        near_peak: all three under the threshold in force (0.15 unless the task says otherwise).
        bound: the leading axis.
        why: one sentence naming the numbers behind it.
    """

    time_ms: float
    floor_ms: float | None
    gap: float | None
    compute: float
    memory: float
    latency: float
    near_peak: bool
    bound: Axis
    why: str

    def of(self, axis: Axis) -> float:
        """Headroom of one axis."""
        return {"compute": self.compute, "memory": self.memory, "latency": self.latency}[axis]


@dataclass(frozen=True, slots=True)
class MethodPresence:
    """Machine-code evidence for one method.

    Attributes:
        method: catalogue id.
        verdict: `verified` (signature found or grown), `absent`, `unavailable` (no disassembler, no signature for this
            architecture), `none` (the method leaves no opcode of its own; presence is a code difference).
        reason: one line: which pattern, counts before and after.
        before, after: counts per pattern in the kernel it was applied to and in this one.
        lines: a few disassembly lines that show it.
    """

    method: str
    verdict: Literal["verified", "absent", "unavailable", "none"]
    reason: str
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
