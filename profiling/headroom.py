"""How much faster a kernel could be, and on which axis: the roofline gap split over compute, memory and latency. Pure.

    floor = max(flops / peak_flops, bytes / peak_bandwidth)          (measured peaks)
    G     = 1 - floor / time
    w_m   = load of the busiest memory unit, w_c = of the busiest math pipe, w_l = 1 - max(w_m, w_c)
    D_x   = G * w_x / max(w_m, w_c, w_l)

Only the gap decides how near the peak a kernel is; the loads only divide it. So units that are busy doing needless work
(a first-level cache at 99% in a kernel nine times off its floor) never look like a peak that was reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from profiling.ceilings import peak_bytes, peak_flops
from profiling.findings import AXES, Axis, Ceilings, Headroom, Metric, Profile, ProfiledKernel, Work
from profiling.gpu_metrics import gpu_loads

NEAR_PEAK = 0.15
LEAST_SHARE = 0.10
# A load that was not measured. Neither 0 ("idle") nor 1 ("saturated") may be made up: it takes no side.
_UNKNOWN_LOAD = 0.5
_MEMORY_LOADS = ("bandwidth_fraction", "dram_fraction", "cache_fill_fraction")


class Split(NamedTuple):
    """The gap on each axis, 0-1."""

    compute: float
    memory: float
    latency: float


def floor_ms(work: Work, ceilings: Ceilings, dtype: str, theoretical: bool = False) -> float | None:
    """The least time the ceilings allow for `work`, ms; None when neither operations nor bytes can be weighed.

    Args:
        work: operations and least bytes of one call.
        ceilings: this device's.
        dtype: arithmetic that the operations are counted at (the fastest that the task's precision admits).
        theoretical: against theoretical peaks, for the `suspect` rule; headroom uses measured ones.
    """
    return _highest(*_floors(work, ceilings, dtype, theoretical))


def split(gap: float, w_m: float | None, w_c: float | None) -> Split:
    """Divide a gap over the axes by how busy memory (`w_m`) and math pipes (`w_c`) are, each 0-1, None if unknown."""
    memory, compute, latency = _loads(w_m, w_c)
    most = max(memory, compute, latency)
    return Split(compute=gap * compute / most, memory=gap * memory / most, latency=gap * latency / most)


def headroom(
    time_ms: float, work: Work, ceilings: Ceilings, dtype: str, profile: Profile, near_peak: float = NEAR_PEAK
) -> Headroom:
    """Headroom of a kernel on any device, its loads taken from the profile (see `loads`)."""
    flops_floor, bytes_floor = _floors(work, ceilings, dtype, theoretical=False)
    w_m, w_c = loads(profile)
    return headroom_of(
        time_ms,
        flops_floor_ms=flops_floor,
        bytes_floor_ms=bytes_floor,
        w_m=w_m,
        w_c=w_c,
        near_peak=near_peak,
    )


def loads(profile: Profile) -> tuple[float | None, float | None]:
    """Loads of the busiest memory unit and the busiest math pipe, 0-1; None where not measured.

    On a GPU as ncu measured them, over all kernels of the call. On a CPU memory's is the highest of: bandwidth used by
    the least bytes, the same by counted last-level misses, and second-level bandwidth used by first-level misses.
    Without counters the work alone gives lower bounds: a unit is at least that busy, and a low one says nothing.
    """
    if profile.source == "ncu":
        return gpu_loads(profile.kernels or (_single(profile),))
    found = [load for load in map(profile.value, _MEMORY_LOADS) if load is not None]
    w_m, w_c = max(found, default=None), profile.value("flops_fraction")
    if profile.level == "degraded":
        return _if_high(w_m), _if_high(w_c)
    return w_m, w_c


def _single(profile: Profile) -> ProfiledKernel:
    """A profile without a list of kernels, as one kernel with its metrics."""
    metrics = {metric.name: metric.value for metric in profile.metrics}
    return ProfiledKernel("", 1, None, None, None, None, metrics)


def _if_high(load: float | None) -> float | None:
    return load if load is not None and load > _UNKNOWN_LOAD else None


def headroom_of(
    time_ms: float,
    *,
    flops_floor_ms: float | None,
    bytes_floor_ms: float | None,
    w_m: float | None,
    w_c: float | None,
    near_peak: float = NEAR_PEAK,
) -> Headroom:
    """Headroom from floors and loads, on any device.

    Without a floor the axes are divided by the loads alone, as if the whole time were gap (half of it where a load is
    not known either: what was not measured is no reason for full headroom), and the kernel is never near its peak. A
    time under the floor counts as no gap, and `why` says so.

    Args:
        time_ms: the kernel's time.
        flops_floor_ms, bytes_floor_ms: least times by arithmetic and by bandwidth, None where unknown.
        w_m, w_c: loads of the busiest memory unit and the busiest math pipe, 0-1, None where not measured.
        near_peak: headroom under which, on all three axes, a kernel counts as near its peak.
    """
    floor = _highest(flops_floor_ms, bytes_floor_ms)
    gap = None if floor is None else 0.0 if time_ms <= floor else 1.0 - floor / time_ms
    assumed = _UNKNOWN_LOAD if w_m is None or w_c is None else 1.0
    shares = split(assumed if gap is None else gap, w_m, w_c)
    bound = _bound(w_m, w_c, memory_floor_leads=(bytes_floor_ms or 0.0) >= (flops_floor_ms or 0.0))
    return Headroom(
        time_ms=time_ms,
        floor_ms=floor,
        gap=gap,
        compute=shares.compute,
        memory=shares.memory,
        latency=shares.latency,
        near_peak=gap is not None and max(shares) < near_peak,
        bound=bound,
        why=_why(time_ms, floor, floor is not None and floor == bytes_floor_ms, w_m, w_c, bound),
    )


def axis_budget(headroom: Headroom, methods: int, axis_cap: int) -> dict[Axis, int]:
    """How many methods a plan may spend on each axis.

    Slots go in proportion to headroom by largest remainder, at most `axis_cap` each; what a capped axis cannot take
    goes to the others. An axis under `LEAST_SHARE` gets none as long as the others can take its slots; one with no
    headroom at all never gets any. So the sum may be less than `methods`, and is zero where no axis has any headroom.
    """
    shares = {axis: headroom.of(axis) for axis in AXES if headroom.of(axis) > 0}
    budget: dict[Axis, int] = dict.fromkeys(AXES, 0)
    worthwhile = {axis: share for axis, share in shares.items() if share >= LEAST_SHARE}
    for tier in (worthwhile, {axis: share for axis, share in shares.items() if axis not in worthwhile}):
        budget |= _apportion(tier, methods - sum(budget.values()), axis_cap)
    return budget


def top_metrics(profile: Profile, k: int) -> dict[Axis, tuple[Metric, ...]]:
    """Per axis the `k` metrics furthest from good, by name where equally far."""
    return {
        axis: tuple(sorted((m for m in profile.metrics if m.axis == axis), key=lambda m: (-m.distance, m.name))[:k])
        for axis in AXES
    }


def _floors(work: Work, ceilings: Ceilings, dtype: str, theoretical: bool) -> tuple[float | None, float | None]:
    flops_rate = peak_flops(ceilings, dtype, theoretical=theoretical)
    bytes_rate = peak_bytes(ceilings, theoretical=theoretical)
    by_flops = None if work.flops is None or flops_rate is None else 1e3 * work.flops / flops_rate
    by_bytes = None if work.bytes is None else 1e3 * work.bytes / bytes_rate
    return by_flops, by_bytes


def _highest(*floors_ms: float | None) -> float | None:
    """The floor that binds. One of zero (no operations, and bytes unknown) binds nothing and is none."""
    return max((ms for ms in floors_ms if ms), default=None)


def _loads(w_m: float | None, w_c: float | None) -> tuple[float, float, float]:
    known = [min(1.0, max(0.0, load)) for load in (w_m, w_c) if load is not None]
    memory = _UNKNOWN_LOAD if w_m is None else min(1.0, max(0.0, w_m))
    compute = _UNKNOWN_LOAD if w_c is None else min(1.0, max(0.0, w_c))
    return memory, compute, 1.0 - max(known, default=_UNKNOWN_LOAD)


def _bound(w_m: float | None, w_c: float | None, *, memory_floor_leads: bool) -> Axis:
    """The leading axis. A measured load beats one that is only assumed; then the axis that sets the floor leads."""
    memory, compute, latency = _loads(w_m, w_c)
    ranked: dict[Axis, tuple[float, bool, int]] = {
        "memory": (memory, w_m is not None, 2 if memory_floor_leads else 1),
        "compute": (compute, w_c is not None, 1 if memory_floor_leads else 2),
        "latency": (latency, w_m is not None or w_c is not None, 0),
    }
    return max(ranked, key=lambda axis: ranked[axis])


def _why(time_ms: float, floor: float | None, by_bytes: bool, w_m: float | None, w_c: float | None, bound: Axis) -> str:
    def percent(load: float | None) -> str:
        return "not measured" if load is None else f"{100 * load:.0f}% busy"

    loads = f"memory {percent(w_m)}, arithmetic {percent(w_c)}: {bound} leads"
    if floor is None:
        return f"Work or ceilings are not known, so there is no floor for its {time_ms:.4g} ms; {loads}."
    kind = "bandwidth" if by_bytes else "arithmetic"
    if time_ms < floor:
        return (
            f"{time_ms:.4g} ms is below the {kind} floor of {floor:.4g} ms at measured peaks, so the gap counts as 0 "
            f"(data left in cache, or `work` asks too much); {loads}."
        )
    return f"{time_ms:.4g} ms is {time_ms / floor:.3g} times the {kind} floor of {floor:.4g} ms; {loads}."


def _apportion(shares: Mapping[Axis, float], slots: int, cap: int) -> dict[Axis, int]:
    """Largest-remainder seats for `shares`, none above `cap`; the excess of a capped axis is shared out anew."""
    seats: dict[Axis, int] = {}
    open_shares = dict(shares)
    while open_shares and slots > 0:
        total = sum(open_shares.values())
        full = [axis for axis, share in open_shares.items() if slots * share / total >= cap]
        if not full:
            break
        # One at a time, the largest first: fixing one changes the quotas of the rest.
        first = max(full, key=lambda axis: open_shares[axis])
        seats[first] = min(cap, slots)
        slots -= seats[first]
        del open_shares[first]
    total = sum(open_shares.values())
    quotas = {axis: slots * share / total for axis, share in open_shares.items()}
    seats |= {axis: int(quota) for axis, quota in quotas.items()}
    spare = slots - sum(int(quota) for quota in quotas.values())
    by_remainder = sorted(quotas, key=lambda axis: (int(quotas[axis]) - quotas[axis], -quotas[axis]))
    for axis in by_remainder[: max(0, spare)]:
        seats[axis] += 1
    return seats
