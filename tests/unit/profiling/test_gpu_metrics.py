"""Which of a GPU kernel's numbers lead, and what its profile says of headroom: where a plan spends its methods."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from profiling.findings import Ceilings, Metric, Profile, ProfiledKernel, Work
from profiling.gpu_metrics import gpu_loads, gpu_metrics, report_ceilings
from profiling.gpu_rules import ALTERNATIVES, RULES, STALLS
from profiling.headroom import headroom, loads, top_metrics
from profiling.ncu.pages import parse_pages
from profiling.ncu.runner import degraded_profile, make_profile
from profiling.ncu.summary import kernels_of, overall

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "ncu"
CEILINGS = Ceilings(4.28e12, 4.47e12, None, {"float32": 5.1e13}, {"float32": 6.7e13}, 4.8e12, {})
GEMM = Work(2 * 2048**3, 3 * 4 * 2048**2)
SOFTMAX = Work(5 * 4096 * 1024, 2 * 4 * 4096 * 1024)
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed"


def recorded(stem: str, work: Work, time_ms: float) -> Profile:
    pages = parse_pages((DATA / f"{stem}.csv").read_bytes())
    return make_profile(pages, "full", time_ms=time_ms, work=work, ceilings=CEILINGS, dtype="float32", note="recorded")


def kernel(time_ms: float | None = 1.0, **metrics: float) -> ProfiledKernel:
    named = {name.replace("___", "."): value for name, value in metrics.items()}
    return ProfiledKernel("k", 1, time_ms, None, None, None, named)


def profile(*kernels: ProfiledKernel) -> Profile:
    return Profile("ncu", "full", (), "", kernels)


def leading(profile: Profile, k: int = 3) -> dict[str, list[str]]:
    return {axis: [metric.name for metric in metrics] for axis, metrics in top_metrics(profile, k).items()}


def distances(values: dict[str, float], work: Work = GEMM) -> dict[str, float]:
    return {m.name: m.distance for m in gpu_metrics(values, 1.0, work, CEILINGS, "float32")}


def test_naive_gemm_is_not_near_peak_and_memory_leads() -> None:
    """Recorded on an H200: L1 99% busy, nine times off its floor. Stopping there would throw away a factor of nine."""
    room = headroom(3.14, GEMM, CEILINGS, "float32", recorded("gemm_naive_full_raw", GEMM, 3.14))
    assert not room.near_peak
    assert room.bound == "memory"
    assert room.memory == pytest.approx(1 - room.floor_ms / 3.14 if room.floor_ms else 0)
    assert room.compute < 0.3
    assert room.latency < 0.05
    assert "memory 99% busy" in room.why


def test_saturated_memory_is_near_peak_and_memory_bound() -> None:
    """DRAM 95%, FP32 5%: going on would spend money on a kernel that has nothing left."""
    room = headroom(1.0, Work(None, 0.95e-3 * 4.47e12), CEILINGS, "float32", profile(kernel(**{DRAM: 95, FMA: 5})))
    assert room.near_peak
    assert room.bound == "memory"


def test_a_stalled_kernel_of_low_occupancy_leads_with_latency() -> None:
    busy = kernel(**{DRAM: 20, L1: 15, FMA: 10})
    room = headroom(5.0, Work(1e9, 1e-3 * 4.47e12), CEILINGS, "float32", profile(busy))
    assert room.bound == "latency"
    assert not room.near_peak
    assert room.latency == pytest.approx(0.8)


@pytest.mark.parametrize("unit", [L1, "lts__throughput.avg.pct_of_peak_sustained_elapsed"])
def test_a_busy_cache_alone_never_means_near_peak(unit: str) -> None:
    room = headroom(9.0, Work(None, 1e-3 * 4.47e12), CEILINGS, "float32", profile(kernel(**{unit: 99.9, FMA: 99})))
    assert not room.near_peak


def test_the_busiest_tensor_pipe_counts() -> None:
    """An fp16 product leaves the float64 and integer tensor pipes at 0%; the worst of all would read as idle."""
    pipes = {
        f"sm__pipe_tensor_op_{op}_cycles_active.avg.pct_of_peak_sustained_elapsed": busy
        for op, busy in (("dmma", 0.0), ("hmma", 88.0), ("imma", 0.0))
    }
    assert gpu_loads([kernel(**pipes, **{FMA: 6.0})]).compute == pytest.approx(0.88)
    older = {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": 60.0}
    assert gpu_loads([kernel(**older)]).compute == pytest.approx(0.6)


def test_load_store_and_uniform_pipes_are_no_math() -> None:
    """A kernel that only loads is not bound by arithmetic."""
    values = {f"sm__inst_executed_pipe_{p}.avg.pct_of_peak_sustained_elapsed": 90.0 for p in ("lsu", "uniform", "cbu")}
    assert gpu_loads([kernel(**values)]).compute is None


def test_missing_counters_take_no_side() -> None:
    """Read as 0 they made every axis full headroom."""
    assert gpu_loads([kernel()]) == (None, None)
    room = headroom(2.0, GEMM, CEILINGS, "float32", profile(kernel(**{DRAM: 90})))
    assert room.bound == "memory"
    assert room.compute < room.memory
    unknown = headroom(2.0, Work(None, None), CEILINGS, "float32", profile(kernel()))
    assert max(unknown.compute, unknown.memory, unknown.latency) < 1
    assert not unknown.near_peak


def test_a_share_of_active_cycles_is_of_the_whole_time() -> None:
    """One block on one SM: its L1 is 90% busy while active, and idle on the other 131 SMs."""
    values = {
        "l1tex__throughput.avg.pct_of_peak_sustained_active": 90.0,
        "sm__cycles_active.avg": 10.0,
        "sm__cycles_elapsed.avg": 1000.0,
    }
    assert gpu_loads([kernel(**values)]).memory == pytest.approx(0.009)


def test_loads_of_several_kernels_are_weighted_by_duration() -> None:
    long, short = kernel(9.0, **{DRAM: 90, FMA: 10}), kernel(1.0, **{L1: 10, FMA: 90})
    assert tuple(gpu_loads([long, short])) == pytest.approx((0.82, 0.18))
    untimed = [kernel(None, **{DRAM: 90}), kernel(None, **{DRAM: 10})]
    assert gpu_loads(untimed).memory == pytest.approx(0.5)


def test_without_counters_a_low_share_of_the_peak_says_nothing() -> None:
    """A kernel at 3% of its bandwidth may be bound by anything; calling it latency would misspend the plan."""
    slow = degraded_profile(GEMM, CEILINGS, 3.14, "float32", "no permission")
    assert loads(slow) == (None, None)
    assert headroom(3.14, GEMM, CEILINGS, "float32", slow).bound == "compute", "the axis that sets the floor"
    fast = degraded_profile(SOFTMAX, CEILINGS, 0.009, "float32", "no permission")
    assert headroom(0.009, SOFTMAX, CEILINGS, "float32", fast).bound == "memory"


def test_a_profile_of_metrics_alone_has_loads_too() -> None:
    only = Profile("ncu", "full", (Metric(DRAM, 70, "%", "memory", "low", 0.7, ""),), "")
    assert loads(only)[0] == pytest.approx(0.7)
    assert loads(only)[1] is None


def test_what_leads_in_naive_gemm() -> None:
    """Traffic between L1 and L2 is 83 times the least bytes: the numbers must suggest tiling, which cuts it."""
    top = leading(recorded("gemm_naive_full_raw", GEMM, 3.14))
    assert top["memory"][0] == "l1tex__m_xbar2l1tex_read_bytes.sum"
    assert L1 in top["memory"]
    assert top["compute"][0] == "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
    assert top["latency"][0] == "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"


def test_what_leads_in_softmax() -> None:
    """A stream has no use for tensor cores and hits no cache; neither may lead."""
    found = recorded("softmax_triton_full_raw", SOFTMAX, 0.0094)
    top = leading(found)
    assert not any("tensor" in name or "pipe_fma" in name for name in top["compute"])
    assert top["memory"][0] == "lts__throughput.avg.pct_of_peak_sustained_elapsed"
    by_name = {metric.name: metric.distance for metric in found.metrics}
    assert by_name["l1tex__t_sector_hit_rate.pct"] < 0.05, "0% of L1 hits, and every byte is fetched once"
    assert by_name["flops_fraction"] < 0.1


def test_every_metric_is_within_bounds_and_in_ncu_names() -> None:
    for stem in ("gemm_naive_full_raw", "softmax_two_full_raw", "softmax_triton_full_raw", "gemm_naive_full_details"):
        found = recorded(stem, GEMM, 3.14)
        assert len(found.metrics) > 20
        for metric in found.metrics:
            assert 0 <= metric.distance <= 1, metric
            assert metric.meaning.endswith("."), metric
            assert metric.unit != "%" or 0 <= metric.value <= 100, metric
        names = [metric.name for metric in found.metrics]
        assert len(set(names)) == len(names)


def test_a_kernel_without_branches_has_no_bad_branches() -> None:
    """ncu prints 0% uniform branches where there are none at all."""
    names = {metric.name for metric in recorded("softmax_triton_full_raw", SOFTMAX, 0.0094).metrics}
    assert "smsp__sass_average_branch_targets_threads_uniform.pct" not in names
    assert "smsp__sass_average_branch_targets_threads_uniform.pct" in {
        metric.name for metric in recorded("gemm_naive_full_raw", GEMM, 3.14).metrics
    }


def test_a_stall_counts_as_far_as_issue_slots_are_empty() -> None:
    """At 95% of the issue slots used, another warp fills every wait."""
    stall = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
    base = {stall: 6.0, "smsp__average_warp_latency_per_inst_issued.ratio": 12.0}
    issue = "smsp__issue_active.avg.pct_of_peak_sustained_active"
    assert distances({**base, issue: 20.0})[stall] == pytest.approx(0.8)
    assert distances({**base, issue: 95.0})[stall] == pytest.approx(0.05)
    ready = "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"
    assert distances({ready: 9.0})[ready] == 0, "a warp that is ready waits for nothing"


def test_registers_are_bad_only_where_they_limit_occupancy() -> None:
    name = "launch__registers_per_thread"
    limits = {"launch__occupancy_limit_registers": 2.0, "launch__occupancy_limit_warps": 8.0,
              "sm__maximum_warps_per_active_cycle_pct": 25.0}  # fmt: skip
    assert distances({name: 128.0, **limits})[name] == pytest.approx(0.75)
    assert distances({name: 128.0, **limits, "launch__occupancy_limit_warps": 1.0})[name] == 0


def test_the_last_wave_is_what_counts() -> None:
    name = "launch__waves_per_multiprocessor"
    assert distances({name: 0.25})[name] == pytest.approx(0.75), "three quarters of the GPU idle"
    assert distances({name: 1.1})[name] == pytest.approx(0.45)
    assert distances({name: 16.0})[name] == 0


def test_older_names_give_the_same_metric() -> None:
    """Triggers of the catalogue name today's metrics; an A100 and an older ncu have others."""
    old = {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 70.0, "dram__bytes_op_read.sum": 5.0}
    found = {m.name: m.value for m in gpu_metrics(old, 1.0, GEMM, CEILINGS, "float32")}
    assert found[DRAM] == 70.0
    assert found["dram__bytes_read.sum"] == 5.0


def test_sectors_per_request_follow_from_their_parts() -> None:
    name = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
    found = recorded("gemm_naive_full_raw", GEMM, 3.14)
    assert found.value(name) == pytest.approx(2.0)


def test_every_trigger_of_the_catalogue_can_fire() -> None:
    """A method whose trigger no profile holds is never suggested by evidence."""
    text = (ROOT / "prompts" / "methods" / "gpu.yaml").read_text()
    methods = yaml.safe_load(text)["methods"]
    triggers = {trigger["metric"] for method in methods for trigger in method.get("triggers", ())}
    assert triggers <= set(RULES), "no rule reads these"


def test_tables_fit_each_other() -> None:
    assert set(ALTERNATIVES) <= set(RULES)
    assert set(STALLS) <= set(RULES)
    assert all(rule.best != rule.worst for rule in RULES.values())


def test_theoretical_peaks_of_a_report() -> None:
    """Without a GPU at hand, the report itself says what the chip could do at its clocks."""
    raw = parse_pages((DATA / "gemm_naive_full_raw.csv").read_bytes())
    found = report_ceilings(overall(kernels_of(raw.launches)))
    assert found is not None
    assert found.read_bytes == pytest.approx(4.81e12, rel=0.01)
    assert found.flops["float32"] == pytest.approx(66.8e12, rel=0.01)
    assert report_ceilings({}) is None
