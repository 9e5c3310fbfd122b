"""Counters of a CPU kernel: parsed from what the tools print, and read for real where the tools are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profiling.counters import (
    CountersUnavailableError,
    cachegrind_counts,
    counter_source,
    parse_cachegrind,
    parse_perf_csv,
    perf_counts,
    profile_cpu,
)
from profiling.cpu_metrics import RULES, Counts, count_metrics, mix_metrics, work_metrics
from profiling.findings import Ceilings, Profile, Work

CEILINGS = Ceilings(
    copy_bytes=2e10,
    read_bytes=1e10,
    flops={"float32": 1e11, "float64": 5e10},
    theoretical_flops={"float32": 2e11, "float64": 1e11},
    theoretical_bytes=8e10,
    cache_bytes=1e11,
    provenance={},
)
MIX = {"scalar_float": 2, "vector_128": 0, "vector_256": 6, "vector_512": 0, "fma": 4, "divisions": 1, "gathers": 0}

needs_cachegrind = pytest.mark.skipif(
    not (shutil.which("valgrind") and shutil.which("g++")), reason="needs valgrind and g++"
)

# Column sums by rows of a column-major walk: one access per line, no arithmetic to speak of.
STRIDED = """
static float a[512 * 512], out[512];
int main(int argc, char **) {
    for (int i = 0; i < 512 * 512; i++) a[i] = float(i);
    if (argc > 1)
        for (int j = 0; j < 512; j++)
            for (int i = 0; i < 512; i++) out[j] += a[i * 512 + j];
    volatile float keep = out[7];
    return keep < 0;
}
"""
CRASHING = "int main(int argc, char **) { if (argc > 1) __builtin_trap(); return 0; }"
HANGING = "int main(int argc, char **) { for (volatile int i = 0; argc > 1; i = 0) {} return 0; }"
WIDE = """
#include <immintrin.h>
static float a[16];
__attribute__((target("avx512f"))) static void wide() { _mm512_storeu_ps(a, _mm512_sqrt_ps(_mm512_loadu_ps(a))); }
int main(int argc, char **) { if (argc > 1) wide(); return 0; }
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], tuple[list[str], list[str]]]:
    """Compile a program; returns the commands that run it with the kernel and without."""

    def build(source: str) -> tuple[list[str], list[str]]:
        (tmp_path / "p.cpp").write_text(source)
        command = ["g++", "-O2", "-fno-tree-vectorize", str(tmp_path / "p.cpp"), "-o", str(tmp_path / "p")]
        subprocess.run(command, check=True)
        return [str(tmp_path / "p"), "solve"], [str(tmp_path / "p")]

    return build


def value(profile: Profile, name: str) -> float:
    found = profile.value(name)
    assert found is not None, f"{name} is missing"
    return found


def test_perf_csv_holds_gaps_comments_and_modifiers() -> None:
    text = """# started on Mon Nov 30 04:40:10 2026

1234567;;cycles:u;0,52%;1000000;100,00;;
<not counted>;;instructions:u;0.00%;0;0.00;;
<not supported>;;LLC-loads:u;0.00%;0;100.00;;
0,74;msec;task-clock;;740000;100,00;0,490;CPUs utilized
some warning
"""
    assert parse_perf_csv(text) == {"cycles": 1234567, "instructions": None, "LLC-loads": None, "task-clock": 0.74}


def test_perf_csv_with_commas_and_two_kinds_of_core() -> None:
    cores = "100,,cpu_core/instructions/u,5,50.00,,\n7,,cpu_atom/instructions/u,5,50.00,,\n"
    text = "<not supported>,,cycles,0,100.00,,\n" + cores
    assert parse_perf_csv(text, ",") == {"cycles": None, "instructions": 107}


def test_perf_counts_of_zero_stay_zero_and_missing_stays_missing() -> None:
    """A missing counter read as 0 once made a kernel look perfect."""
    assert parse_perf_csv("0;;branch-misses:u;;1;100;;") == {"branch-misses": 0}
    assert parse_perf_csv("") == {}


CACHEGRIND = """desc: I1 cache:         32768 B, 64 B, 8-way associative
desc: D1 cache:         49152 B, 64 B, 12-way associative
desc: LL cache:         33554432 B, 64 B, 16-way associative
cmd: ./p solve
events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw Bc Bcm Bi Bim
fl=/tmp/p.cpp
fn=main
3 1 0 0 1 0 0 0 0 0 1 0 0 0
summary: 1000 3 2 400 50 40 100 10 5 120 6 2 1
"""


def test_cachegrind_summary_and_caches_are_read() -> None:
    events, caches = parse_cachegrind(CACHEGRIND)
    assert events["Ir"] == 1000
    assert events["DLmw"] == 5
    assert caches["D1"] == {"size": 49152, "line": 64}
    assert caches["LL"]["size"] == 32 << 20


def test_a_cachegrind_file_that_was_cut_short_is_no_data() -> None:
    with pytest.raises(CountersUnavailableError, match="cut short"):
        parse_cachegrind(CACHEGRIND[: CACHEGRIND.index("summary")])


def test_missing_counts_give_no_metric() -> None:
    """Everything is missing but the instructions: no rate, no fraction and no cycle count may be made up."""
    metrics = count_metrics(Counts(instructions=1e6), 1.0, Work(1e6, None), CEILINGS, "float32")
    assert {m.name for m in metrics} == {"instructions_per_flop"}
    assert work_metrics(1.0, Work(None, None), CEILINGS, "float32") == ()
    assert mix_metrics({"scalar_float": 3, "call_targets": "expf"}, "float32")[0].name == "scalar_float_in_loops"
    assert mix_metrics(None, "float32") == ()


def test_fractions_are_of_measured_peaks() -> None:
    found = {m.name: m for m in work_metrics(1.0, Work(5e7, 4e6), CEILINGS, "float32")}
    assert found["flops_fraction"].value == pytest.approx(0.5)
    assert found["bandwidth_fraction"].value == pytest.approx(0.2)
    assert found["roofline_fraction"].value == pytest.approx(0.5)
    assert found["roofline_fraction"].axis == "compute"
    assert found["roofline_fraction"].distance == pytest.approx(0.5)
    untyped = {m.name for m in work_metrics(1.0, Work(5e7, 4e6), CEILINGS, "float16")}
    assert untyped == {"roofline_fraction", "bandwidth_fraction"}


def test_counts_become_rates_and_traffic() -> None:
    counts = Counts(1e6, 5e5, 4e5, 1e5, 1e5, 5e4, 2e5, 2e3)
    found = {m.name: m.value for m in count_metrics(counts, 1.0, Work(2e6, 1.6e6), CEILINGS, "float32")}
    assert found["ipc"] == 2
    assert found["l1_miss_rate"] == 0.25
    assert found["l1_misses_per_kinst"] == 100
    assert found["llc_miss_rate"] == 0.5
    assert found["llc_miss_bytes_ratio"] == 2
    assert found["dram_fraction"] == pytest.approx(5e4 * 64 / 1e-3 / 2e10)
    assert found["cache_fill_fraction"] == pytest.approx(1e5 * 64 / 1e-3 / 1e11)
    assert found["branch_mispredict_rate"] == 0.01
    assert found["branches_per_kinst"] == 200
    assert found["instructions_per_flop"] == 0.5


def test_a_perfect_streaming_loop_has_no_distance_in_its_misses() -> None:
    """Every other 32-byte load misses, and nothing is wrong with it: its miss rate must not lead the prompt."""
    bytes_moved = 6.4e6
    perfect = Counts(instructions=3e5, data_refs=2e5, l1_misses=1e5, llc_refs=1e5, llc_misses=1e5)
    found = {m.name: m for m in count_metrics(perfect, 1.0, Work(None, bytes_moved), CEILINGS, "float32")}
    assert found["l1_miss_rate"].value == 0.5
    assert found["l1_miss_rate"].distance == 0
    assert found["llc_miss_rate"].distance == 0
    wasteful = Counts(instructions=3e5, data_refs=2e6, l1_misses=1e6, llc_refs=1e6, llc_misses=1e6)
    found = {m.name: m for m in count_metrics(wasteful, 1.0, Work(None, bytes_moved), CEILINGS, "float32")}
    assert found["l1_miss_rate"].distance > 0.5
    assert found["llc_miss_bytes_ratio"].distance > 0.5


def test_the_instruction_mix_says_how_wide_the_loops_are() -> None:
    found = {m.name: m for m in mix_metrics({**MIX, "calls_in_loops": 3}, "float32")}
    assert found["vector_width_share"].value == pytest.approx((2 * 32 + 6 * 256) / 8 / 256)
    assert found["fma_share"].value == 0.5
    assert found["scalar_float_in_loops"].value == 2
    assert found["divisions_in_loops"].distance == 0.25
    assert found["gathers_in_loops"].value == 0, "counted and none is a value"
    assert found["calls_in_loops"].distance == 1


def test_every_rule_runs_from_good_to_bad() -> None:
    """A rule whose ends are swapped would hide the worst metrics of a kernel from its prompt."""
    for name, rule in RULES.items():
        assert (rule.best < rule.worst) == (rule.good == "low"), name
        assert rule.distance(rule.best) == 0, name
        assert rule.distance(rule.worst) == 1, name
        assert rule.meaning.endswith("."), name


def test_the_source_is_found_by_reading_and_says_why_not_better() -> None:
    source = counter_source()
    assert source.name in ("perf", "cachegrind", "counted")
    assert bool(source.reason) == (source.name != "perf")


@needs_cachegrind
def test_cachegrind_counts_the_kernel_and_not_its_process(
    program: Callable[[str], tuple[list[str], list[str]]],
) -> None:
    solo, empty = program(STRIDED)
    counts, note = cachegrind_counts(solo, empty, timeout_s=60)
    accesses = 512 * 512
    assert counts.instructions is not None
    assert 2 * accesses < counts.instructions < 10 * accesses, "the set-up loop, as long, is taken off"
    assert counts.l1_misses is not None
    assert 0.9 * accesses < counts.l1_misses < 1.2 * accesses, "each access of the column walk misses"
    assert counts.cycles is None
    assert "cachegrind" in note


@needs_cachegrind
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param(CRASHING, "valgrind does not know an instruction|SIG", id="crash"),
        pytest.param("int main() { return 3; }", "exit code 3", id="fails"),
        pytest.param("int main() { return 0; }", "too short", id="nothing to count"),
        pytest.param(WIDE, "no AVX-512", id="avx512"),
    ],
)
def test_why_cachegrind_could_not_count_is_said(
    program: Callable[[str], tuple[list[str], list[str]]], source: str, reason: str
) -> None:
    solo, empty = program(source)
    with pytest.raises(CountersUnavailableError, match=reason):
        cachegrind_counts(solo, empty, timeout_s=60)


@needs_cachegrind
def test_a_kernel_too_slow_to_count_leaves_a_degraded_profile(
    program: Callable[[str], tuple[list[str], list[str]]],
) -> None:
    """The run goes on with counted work, and says that it does and why."""
    solo, empty = program(HANGING)
    profile = profile_cpu(
        solo,
        empty,
        time_ms=1.0,
        work=Work(1e7, 1e6),
        ceilings=CEILINGS,
        mix=MIX,
        dtype="float32",
        timeout_s=3,
    )
    assert (profile.source, profile.level) == ("counted", "degraded")
    assert "longer than" in profile.note or "time limit" in profile.note
    assert value(profile, "flops_fraction") == pytest.approx(0.1)
    assert value(profile, "vector_width_share") > 0
    assert profile.value("l1_miss_rate") is None


@needs_cachegrind
def test_a_full_profile_joins_counts_work_and_machine_code(
    program: Callable[[str], tuple[list[str], list[str]]],
) -> None:
    solo, empty = program(STRIDED)
    profile = profile_cpu(
        solo,
        empty,
        time_ms=1.0,
        work=Work(512 * 512, 4 * 512 * 512),
        ceilings=CEILINGS,
        mix=MIX,
        dtype="float32",
        timeout_s=60,
    )
    assert profile.level == "full"
    assert profile.source == counter_source().name
    assert value(profile, "instructions_per_flop") > 1
    if profile.source == "cachegrind":
        assert "not counted: cycles" in profile.note, "a simulation has no clock, and the profile says so"
    assert value(profile, "l1_misses_per_kinst") > 50
    assert {metric.name for metric in profile.metrics} <= set(RULES)
    assert all(0 <= metric.distance <= 1 for metric in profile.metrics)


@pytest.mark.skipif(counter_source().name != "perf", reason="perf reads no hardware counters on this machine")
def test_perf_counts_the_kernel(program: Callable[[str], tuple[list[str], list[str]]]) -> None:
    solo, empty = program(STRIDED)
    counts, _ = perf_counts(solo, empty, timeout_s=60)
    assert counts.instructions is not None
    assert 512 * 512 < counts.instructions < 20 * 512 * 512


@pytest.mark.skipif(counter_source().name == "perf", reason="perf reads hardware counters on this machine")
def test_where_perf_reads_nothing_it_says_so() -> None:
    """`<not supported>` lines come with exit code 0: taken for counts they would be zeros."""
    with pytest.raises(CountersUnavailableError, match="perf"):
        perf_counts([sys.executable, "-c", ""], [sys.executable, "-c", ""], timeout_s=60)
