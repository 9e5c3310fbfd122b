"""Headroom: where the next plan spends its methods, and when the search may stop."""

from __future__ import annotations

import itertools

import pytest

from profiling.cpu_metrics import metric
from profiling.findings import AXES, Axis, Ceilings, Headroom, Metric, Profile, Work
from profiling.headroom import axis_budget, floor_ms, headroom, headroom_of, split, top_metrics

CEILINGS = Ceilings(
    copy_bytes=2e10,
    read_bytes=1e10,
    cache_bytes=None,
    flops={"float32": 1e11},
    theoretical_flops={"float32": 2e11},
    theoretical_bytes=8e10,
    provenance={},
)


def profile(**values: float) -> Profile:
    return Profile("cachegrind", "full", tuple(metric(name, value) for name, value in values.items()), "")


def of(compute: float, memory: float, latency: float) -> Headroom:
    return Headroom(1, None, None, compute, memory, latency, False, "memory", "")


def test_naive_gemm_with_a_busy_first_level_is_not_near_peak() -> None:
    """Recorded: L1 99% busy, FP32 8%, nine times off its floor. Stopping there would throw away a factor of nine."""
    room = headroom_of(9.0, flops_floor_ms=1.0, bytes_floor_ms=0.2, w_m=0.99, w_c=0.08)
    assert not room.near_peak
    assert room.bound == "memory"
    assert room.memory == pytest.approx(8 / 9)
    assert room.compute < 0.1
    assert room.latency < 0.1


def test_saturated_dram_is_near_peak_and_memory_bound() -> None:
    """Recorded: DRAM 95%, FP32 5%. Going on would spend money on a kernel that has nothing left."""
    room = headroom_of(1.0, flops_floor_ms=0.05, bytes_floor_ms=0.95, w_m=0.95, w_c=0.05)
    assert room.near_peak
    assert room.bound == "memory"
    assert room.gap == pytest.approx(0.05)


def test_a_stalled_kernel_leads_with_latency() -> None:
    """Recorded: low occupancy, nothing busy. Its plan must not be spent on tiling."""
    room = headroom_of(5.0, flops_floor_ms=0.5, bytes_floor_ms=1.0, w_m=0.2, w_c=0.1)
    assert room.bound == "latency"
    assert room.latency == pytest.approx(0.8)
    assert room.latency > room.memory > room.compute


def test_dram_busy_with_needless_traffic_is_not_near_peak() -> None:
    """95% busy moving ten times the least bytes: the gap decides, not the load."""
    room = headroom_of(10.0, flops_floor_ms=0.1, bytes_floor_ms=1.0, w_m=0.95, w_c=0.01)
    assert not room.near_peak
    assert room.memory == pytest.approx(0.9)


@pytest.mark.parametrize(("w_m", "w_c"), list(itertools.product((None, 0.0, 0.3, 1.0, 1.4), repeat=2)))
def test_the_leading_axis_gets_the_whole_gap_and_none_more(w_m: float | None, w_c: float | None) -> None:
    shares = split(0.6, w_m, w_c)
    assert max(shares) == pytest.approx(0.6)
    assert min(shares) >= 0


def test_a_load_that_was_not_measured_takes_no_side() -> None:
    """Read as 0 it made latency lead every kernel without counters; read as 1 it would make its own axis lead."""
    assert split(0.8, None, None) == (0.8, 0.8, 0.8)
    busy_memory = split(0.8, 0.9, None)
    assert busy_memory.memory == pytest.approx(0.8)
    assert busy_memory.latency < 0.1
    assert headroom_of(2, flops_floor_ms=1, bytes_floor_ms=None, w_m=None, w_c=0.5).bound == "compute"


def test_without_known_operations_the_byte_floor_decides() -> None:
    room = headroom(1.05, Work(None, 2e7), CEILINGS, "float32", profile(bandwidth_fraction=0.95))
    assert room.floor_ms == pytest.approx(1.0)
    assert room.near_peak
    assert room.bound == "memory"


@pytest.mark.parametrize("work", [Work(None, None), Work(0, None)])
def test_without_known_work_nothing_is_near_peak(work: Work) -> None:
    room = headroom(1.0, work, CEILINGS, "float32", profile(dram_fraction=0.99, flops_fraction=0.99))
    assert room.floor_ms is None
    assert room.gap is None
    assert not room.near_peak
    assert "no floor" in room.why


def test_a_time_below_the_floor_is_said_and_not_negative() -> None:
    room = headroom(0.5, Work(None, 2e7), CEILINGS, "float32", profile())
    assert room.gap == 0
    assert (room.compute, room.memory, room.latency) == (0, 0, 0)
    assert "below the bandwidth floor" in room.why


def test_the_busiest_memory_unit_is_used() -> None:
    """A strided loop refills the first level all the time while memory idles; its memory axis must still lead."""
    idle = profile(flops_fraction=0.01, bandwidth_fraction=0.001, dram_fraction=0.02)
    strided = profile(flops_fraction=0.01, bandwidth_fraction=0.001, dram_fraction=0.02, cache_fill_fraction=0.7)
    work = Work(1e7, 1e5)
    assert headroom(10, work, CEILINGS, "float32", idle).bound == "latency"
    room = headroom(10, work, CEILINGS, "float32", strided)
    assert room.bound == "memory"
    assert "memory 70% busy" in room.why


def test_the_floor_takes_the_binding_ceiling() -> None:
    assert floor_ms(Work(1e8, 2e6), CEILINGS, "float32") == pytest.approx(1.0)
    assert floor_ms(Work(1e6, 2e7), CEILINGS, "float32") == pytest.approx(1.0)
    assert floor_ms(Work(1e8, 2e6), CEILINGS, "float32", theoretical=True) == pytest.approx(0.5)
    assert floor_ms(Work(1e8, None), CEILINGS, "float16") is None, "no ceiling for that arithmetic"


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.9, 0.9, 0.9), (1, 1, 1)),
        ((0.072, 0.889, 0.009), (1, 2, 0)),  # only memory is worth it, and capped: its third slot goes to the next
        ((0.5, 0.4, 0.05), (2, 1, 0)),
        ((0.9, 0.2, 0.2), (2, 1, 0)),
        ((0.05, 0.04, 0.0), (2, 1, 0)),
        ((0.0, 0.0, 0.8), (0, 0, 2)),  # an axis without any headroom gets none, even if a slot stays empty
        ((0.0, 0.0, 0.0), (0, 0, 0)),
    ],
)
def test_slots_follow_headroom(shares: tuple[float, float, float], expected: tuple[int, int, int]) -> None:
    budget = axis_budget(of(*shares), methods=3, axis_cap=2)
    assert tuple(budget[axis] for axis in AXES) == expected


def test_a_budget_never_breaks_its_own_rules() -> None:
    """Over a grid of headrooms, slots and caps: within the cap and the total, and none wasted."""
    steps = (0.0, 0.05, 0.1, 0.33, 0.66, 1.0)
    for shares in itertools.product(steps, repeat=3):
        for methods, cap in itertools.product(range(7), range(4)):
            budget = axis_budget(of(*shares), methods, cap)
            by_axis: dict[Axis, float] = dict(zip(AXES, shares, strict=True))
            assert all(0 <= n <= cap for n in budget.values())
            takers = [axis for axis in AXES if by_axis[axis] > 0]
            assert sum(budget.values()) == min(methods, cap * len(takers))
            worthwhile = [axis for axis in takers if by_axis[axis] >= 0.1]
            if any(budget[axis] for axis in takers if axis not in worthwhile):
                assert all(budget[axis] == cap for axis in worthwhile)
            for a, b in itertools.permutations(AXES, 2):
                if by_axis[a] > by_axis[b]:
                    assert budget[a] >= budget[b]


def test_top_metrics_are_the_worst_of_their_axis() -> None:
    def m(name: str, axis: Axis, distance: float) -> Metric:
        return Metric(name, 1.0, "ratio", axis, "low", distance, "")

    metrics = (m("fine", "memory", 0.0), m("bad", "memory", 0.9), m("b", "memory", 0.5), m("a", "memory", 0.5))
    top = top_metrics(Profile("perf", "full", metrics, ""), 3)
    assert [metric.name for metric in top["memory"]] == ["bad", "a", "b"]
    assert top["compute"] == ()
