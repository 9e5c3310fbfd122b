"""From raw times to a verdict. The controller does this itself: it believes neither clock alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.types import Rejected
from profiling.findings import CaseCheck, Comparison, Evaluation, Timing
from profiling.harness.statistics import bootstrap_interval, interquartile_range, median
from profiling.harness.wire import Block, Compared, Evaluated, FrameTimes, Round, Times
from profiling.types import MeasureSettings

# How far the two clocks may be apart: a tenth of the time, and what waking a process may cost more than it commonly
# does: twice the spread seen with an empty kernel, and a little, but never more than a bound.
_APART = 0.10
_WAKE_NS, _WAKE_MOST_NS = 20_000.0, 100_000.0
# Of an empty solve's interquartile range: twice the standard error of a difference of medians of five; and at most
# that share of a call.
_NOISE, _NOISE_MOST = 1.2, 0.25
_WAITED = 0.02  # of its time, that a frame may have waited for a core
_SHARED = 1.25  # in one frame, the mean call may take this many times the median one
# In a comparison both kernels are woken alike, so what waking costs mostly cancels: the clocks may differ on the gain
# by this share, and by what a waking varies over the shorter of two frames.
_GAIN_APART, _WAKE_VARIES_NS = 0.02, 50_000.0
_LEAST_BATCHES = 3  # undisturbed blocks of batches from each set of workers

_Half = tuple[FrameTimes, FrameTimes]


def evaluation(found: Evaluated, settings: MeasureSettings, *, verified: bool, timed: Mapping[str, int]) -> Evaluation:
    """The verdict on one kernel.

    Args:
        found: the oracle's evidence.
        settings: the floor, and cold or hot.
        verified: whether the task has a reference.
        timed: the timed dims. Reasons go into prompts, which must not tell them.
    """
    failure = next((c for c in found.checks if not c.passed), None)
    if failure is not None:
        return Evaluation("fail", _failure_reason(failure, timed), found.checks, None)
    if found.times is None or found.empty is None:
        return Evaluation("error", "the kernel was not timed", found.checks, None)
    timing = timing_of(found.times, found.empty, settings)
    doubt = doubts(found.times, found.empty) or _under_floor(timing, settings)
    if doubt is not None:
        return Evaluation("suspect", doubt, found.checks, timing)
    return Evaluation("pass" if verified else "unverified", None, found.checks, timing)


def _failure_reason(check: CaseCheck, timed: Mapping[str, int]) -> str:
    if check.distribution == "timed":
        return check.reason or "wrong"
    if check.secret:
        return f"{check.reason} ({check.distribution} inputs, a hidden shape)"
    if dict(check.dims) == dict(timed):
        return f"{check.reason} ({check.distribution} inputs, the timed dims)"
    dims = ", ".join(f"{name}={value}" for name, value in check.dims.items())
    return f"{check.reason} ({check.distribution} inputs, {dims})"


def timing_of(times: Times, empty: Times, settings: MeasureSettings) -> Timing:
    """Milliseconds per call, less an empty `solve`."""
    overhead = _overhead_ns(empty)
    cool = _cool_frames(times.frames)
    kept = _calm_frames(cool)
    samples = tuple(max(0.0, ns - overhead) / 1e6 for f in kept for ns in f.own_ns)
    slope = _slope_ns(times)
    empty_slope = _slope_ns(empty)
    outside = None if slope is None or empty_slope is None else max(0.0, slope - empty_slope) / 1e6
    return Timing(
        median_ms=median(samples),
        iqr_ms=interquartile_range(samples),
        samples_ms=samples,
        overhead_ms=overhead / 1e6,
        outside_ms=outside,
        l2=settings.l2,
        event_ms=_event_ms(times, empty, median(samples)),
        conditions=tuple(f.conditions for f in kept for _ in f.own_ns) if kept[0].conditions else (),
        disturbed=sum(len(f.own_ns) for f in times.frames) - sum(len(f.own_ns) for f in cool),
    )


def _event_ms(times: Times, empty: Times, median_ms: float) -> float | None:
    """Never more than the whole: a `solve` that waits for the GPU has no earlier end, and pays no less for waking."""
    ends = [[float(ns) for f in t.frames for ns in f.event_ns] for t in (times, empty)]
    return min(median_ms, max(0.0, median(ends[0]) - median(ends[1])) / 1e6) if all(ends) else None


def _slope_ns(times: Times) -> float | None:
    """Nanoseconds that one more call adds, by the outside clock."""
    return median([(r.outside_2n - r.outside_n) / r.n for r in times.rounds]) if times.rounds else None


def doubts(times: Times, empty: Times) -> str | None:
    """Why the worker's own times cannot be believed, or None.

    A worker's clock that shows more than ours harms its kernel alone. Three tests: the frames that were timed must
    take as long by our clock as by the worker's; so must what N more calls add to a frame of N; and in a frame of many
    calls none may do the work of the others.
    """
    return (
        _mostly_disturbed(times.frames)
        or _mostly_disturbed(empty.frames)
        or _uneven(times.frames)
        or _frame_doubt(times.frames, empty)
        or _round_doubt(times.rounds, empty)
    )


def _mostly_disturbed(frames: Sequence[FrameTimes]) -> str | None:
    """A kernel must not choose its samples by disturbing the others."""
    disturbed = sum(_disturbed([f]) for f in frames)
    if 2 * disturbed <= len(frames):
        return None
    return f"the GPU was held back by heat or its power brake, or shared, in {disturbed} of {len(frames)} calls"


def _round_doubt(rounds: Sequence[Round], empty: Times) -> str | None:
    if not rounds:
        return None
    own = median([(r.own_2n - r.own_n) / r.n for r in rounds])
    usual = _apart_ns(empty.rounds)
    apart = median(_apart_ns(rounds)) - median(usual)
    call = max(own, 0.0)
    noise = min(_NOISE_MOST * call, _NOISE * interquartile_range(usual))
    if apart > _APART * call + max(_waking_ns(empty)[1] / rounds[0].n, noise):
        return (
            f"clocks disagree: one more call takes {(own + apart) / 1e6:.4g} ms by the outside clock, "
            f"{own / 1e6:.4g} ms by the worker's"
        )
    return None


def _apart_ns(rounds: Sequence[Round]) -> list[float]:
    """By how much more of one call the outside clock shows: around each call, a worker on a GPU waits and records."""
    return [((r.outside_2n - r.outside_n) - (r.own_2n - r.own_n)) / r.n for r in rounds] or [0.0]


def _uneven(frames: Sequence[FrameTimes]) -> str | None:
    calls = [float(ns) for f in frames for ns in f.own_ns]
    mean = median([sum(f.own_ns) / len(f.own_ns) for f in frames])
    if len(frames[0].own_ns) == 1 or mean <= _SHARED * median(calls) + 1000.0:
        return None
    return (
        f"calls are uneven: a frame's mean is {mean / 1e6:.4g} ms, the median call {median(calls) / 1e6:.4g} ms: "
        "some calls do the work of others"
    )


def _frame_doubt(frames: Sequence[FrameTimes], empty: Times) -> str | None:
    waking, allowed = _waking_ns(empty)
    own = median([float(sum(f.own_ns)) for f in frames])
    outside = median([float(f.outside_ns) for f in frames]) - waking
    if outside - own > _APART * own + allowed:
        return (
            f"clocks disagree: timed calls take {outside / 1e6:.4g} ms by the outside clock, "
            f"{own / 1e6:.4g} ms by the worker's"
        )
    return None


def _waking_ns(empty: Times) -> tuple[float, float]:
    """What waking a worker and hearing from it costs here, and how much more it may cost without a doubt."""
    costs = [float(f.outside_ns - sum(f.own_ns)) for f in _cool_frames(empty.frames)]
    return median(costs), min(_WAKE_MOST_NS, _WAKE_NS + 2.0 * interquartile_range(costs))


def _under_floor(timing: Timing, settings: MeasureSettings) -> str | None:
    if settings.floor_ms is not None and timing.median_ms < settings.floor_ms:
        return f"{timing.median_ms:.4g} ms is under the floor of {settings.floor_ms:.4g} ms that this machine allows"
    return None


def comparison(found: Compared, rng: random.Random) -> Comparison | Rejected:
    """Gain and interval of two kernels; a wrong one is rejected at `verify`, doubtful clocks at `time`.

    Each clock gives an interval of its own, and what is reported spans both: a gain is one by either clock or none.
    The gain of short kernels on a GPU is that of batches, where single calls do not contradict them; milliseconds are
    those of single calls.
    """
    if found.failure is not None or found.empty is None or not found.pairs:
        return Rejected("verify", found.failure or "nothing was compared")
    blocks = [block for pair in found.pairs for block in pair]
    doubt = _mostly_disturbed(found.empty.frames)
    if doubt is not None:
        return Rejected("time", doubt)
    for name, frames, rounds in zip("ab", _sides(found.pairs), found.rounds, strict=True):
        doubt = _frame_doubt(frames, found.empty) or _round_doubt(rounds, found.empty)
        if doubt is not None:
            return Rejected("time", f"{name}: {doubt}")
    overhead = _overhead_ns(found.empty)
    waking, _ = _waking_ns(found.empty)
    cool = _cool(found.pairs)
    disturbed = len(blocks) - sum(map(len, cool))
    if not all(cool) or 2 * disturbed > len(blocks):
        return Rejected(
            "time",
            f"the GPU was held back by heat or its power brake, or shared, in {disturbed} of {len(blocks)} blocks",
        )
    pairs = [_calm_blocks(pair) for pair in cool]
    own = _Gains.of(pairs, lambda frames: _call_ns(frames, overhead))
    outside = own
    if not any(found.rounds):  # else one call is too short for the outside clock, which has looked at batches
        outside = _Gains.of(pairs, lambda frames: _outside_call_ns(frames, overhead, waking))
        doubt = _gain_doubt(pairs, own, outside, rng)
        if doubt is not None:
            return Rejected("time", doubt)
    low, high = _span(own.ratios, outside.ratios, rng)
    middle, batch = _middle(own.ratios), 1
    sharper = _batched(found)
    if sharper is not None:
        batch_low, batch_high = bootstrap_interval(sharper, rng)
        if batch_low <= high and batch_high >= low:
            # What single calls show stays within: what a batch alone shows is no gain.
            low, high = min(batch_low, middle), max(batch_high, middle)
            middle, batch = _middle(sharper), len(found.batched[0][0].a[0].own_ns)
        else:  # what only one of them shows is no gain, and the noise that gains are held against is that of batches
            low, high = min(batch_low, 2 * low - middle), max(batch_high, 2 * high - middle)
    delta_low, delta_high = _span(own.deltas, outside.deltas, rng)
    return Comparison(
        speedup=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        a_ms=median([_call_ns(x.a, overhead) for pair in pairs for x in pair]) / 1e6,
        b_ms=median([_call_ns(x.b, overhead) for pair in pairs for x in pair]) / 1e6,
        delta_ms=_middle(own.deltas),
        delta_low_ms=delta_low,
        delta_high_ms=delta_high,
        log_ratios=tuple(tuple(pair) for pair in own.ratios),
        disturbed=disturbed,
        batch=batch,
    )


def _batched(found: Compared) -> Sequence[Sequence[float]] | None:
    """Log-ratios by batches of short calls, where there are any that can be believed.

    A batch is no proof by itself: a kernel could do in its first call what the others ask for, or leave work that the
    next call runs beside. So what one call shows has to agree.
    """
    if found.batched_empty is None or not found.batched:
        return None
    empty = found.batched_empty
    if _mostly_disturbed(empty.frames) or any(_frame_doubt(frames, empty) for frames in _sides(found.batched)):
        return None
    cool = _cool(found.batched)
    if min(map(len, cool)) < _LEAST_BATCHES:
        return None
    overhead = _overhead_ns(empty)
    return _Gains.of([_calm_blocks(pair) for pair in cool], lambda frames: _call_ns(frames, overhead)).ratios


def _sides(pairs: Sequence[Sequence[Block]]) -> tuple[list[FrameTimes], list[FrameTimes]]:
    """All frames of a, and all of b."""
    blocks = [block for pair in pairs for block in pair]
    return [f for x in blocks for f in x.a], [f for x in blocks for f in x.b]


def _cool(pairs: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """The blocks in which neither heat nor company slowed the GPU."""
    return [[x for x in pair if not _disturbed([*x.a, *x.b])] for pair in pairs]


def _overhead_ns(empty: Times) -> float:
    """Nanoseconds of one call of an empty `solve`."""
    return median([float(ns) for f in _cool_frames(empty.frames) for ns in f.own_ns])


@dataclass(frozen=True, slots=True)
class _Gains:
    """What one clock says: by worker pair and block, log(time_a / time_b), and time_a - time_b in milliseconds."""

    ratios: Sequence[Sequence[float]]
    deltas: Sequence[Sequence[float]]

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Block]], call_ns: Callable[[_Half], float]) -> _Gains:
        times = [[(call_ns(x.a), call_ns(x.b)) for x in pair] for pair in pairs]
        return cls(
            ratios=[[math.log(a / b) for a, b in pair] for pair in times],
            deltas=[[(a - b) / 1e6 for a, b in pair] for pair in times],
        )


def _middle(groups: Sequence[Sequence[float]]) -> float:
    return median([value for group in groups for value in group])


def _span(
    own: Sequence[Sequence[float]], outside: Sequence[Sequence[float]], rng: random.Random
) -> tuple[float, float]:
    """The interval over both clocks' 95% intervals."""
    low, high = bootstrap_interval(own, rng)
    if outside is own:
        return low, high
    outside_low, outside_high = bootstrap_interval(outside, rng)
    return min(low, outside_low), max(high, outside_high)


def _gain_doubt(pairs: Sequence[Sequence[Block]], own: _Gains, outside: _Gains, rng: random.Random) -> str | None:
    """Why the gain by the worker's clocks cannot be believed: block for block, the outside clock shows another.

    Pairs in which a worker waited for its core say nothing here: of waiting, its clock shows only what fell into
    calls. The interval, which spans both clocks, holds for them too.
    """
    if not all(calm([*x.a, *x.b]) for pair in pairs for x in pair):
        return None
    apart = [
        [inner - outer for inner, outer in zip(*ratios, strict=True)]
        for ratios in zip(own.ratios, outside.ratios, strict=True)
    ]
    frame_ns = median([min(sum(f.own_ns) for f in (*x.a, *x.b)) for pair in pairs for x in pair])
    margin = _GAIN_APART + _WAKE_VARIES_NS / max(1.0, frame_ns)
    low, high = bootstrap_interval(apart, rng)
    if low <= margin and high >= -margin:
        return None
    return (
        f"{'b' if low > margin else 'a'}: clocks disagree: b is {math.exp(_middle(outside.ratios)):.3g} times as fast "
        f"as a by the outside clock, {math.exp(_middle(own.ratios)):.3g} times by the workers'"
    )


def _cool_frames(frames: Sequence[FrameTimes]) -> Sequence[FrameTimes]:
    """Those that neither heat nor company slowed, where there are any."""
    return [f for f in frames if not _disturbed([f])] or frames


def _disturbed(frames: Sequence[FrameTimes]) -> bool:
    return any(f.conditions is not None and (f.conditions.held_back or f.conditions.shared) for f in frames)


def calm(frames: Sequence[FrameTimes]) -> bool:
    """Whether the worker hardly waited for its core: another process on it would be billed to the kernel."""
    return sum(f.waited_ns for f in frames) <= _WAITED * sum(ns for f in frames for ns in f.own_ns)


def _calm_frames(frames: Sequence[FrameTimes]) -> Sequence[FrameTimes]:
    """The calm ones, where they are at least half: a kernel cannot choose its samples by disturbing the others."""
    kept = [f for f in frames if calm([f])]
    return kept if 2 * len(kept) >= len(frames) else frames


def _calm_blocks(pair: Sequence[Block]) -> Sequence[Block]:
    kept = [x for x in pair if calm([*x.a, *x.b])]
    return kept if 2 * len(kept) >= len(pair) else pair


def _call_ns(frames: _Half, overhead: float) -> float:
    """Nanoseconds of one call over both frames of a kernel's half of a block, never below one."""
    own = [ns for f in frames for ns in f.own_ns]
    return max(1.0, sum(own) / len(own) - overhead)


def _outside_call_ns(frames: _Half, overhead: float, waking: float) -> float:
    """The same by the outside clock, less what waking the worker costs."""
    calls = sum(len(f.own_ns) for f in frames)
    return max(1.0, (sum(f.outside_ns for f in frames) - len(frames) * waking) / calls - overhead)
