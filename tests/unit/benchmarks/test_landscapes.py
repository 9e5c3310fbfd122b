"""Landscapes: what memory's benefit is shown on has to be what was measured, and of the kernels that are there."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import landscape
import pytest
from landscape_data import BASELINE, Gain, Landscape, between, load, load_all
from landscape_sources import Wanted, read_kernels, wanted_landscapes

from agent.errors import ConfigError
from agent.lab import backend_name
from agent.stages.ablation import AUDIT_TOLERANCE
from backends.registry import get_backend
from profiling.findings import Comparison
from tests.kernels import GEMM_REFERENCE

RECORDED = load_all()

SWITCHED = """
#ifndef RC_LOOP_INTERCHANGE
#define RC_LOOP_INTERCHANGE 1
#endif
#ifndef RC_LOOP_UNROLL
#define RC_LOOP_UNROLL 1
#endif
extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
#if RC_LOOP_INTERCHANGE
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) C[i * N + j] = 0;
        for (int k = 0; k < K; k++)
            for (int j = 0; j < N; j++) C[i * N + j] += A[i * K + k] * B[k * N + j];
    }
#else
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float s = 0;
#if RC_LOOP_UNROLL
            C[i * N + j] = 1.0f;
            (void)s;
#else
            for (int k = 0; k < K; k++) s += A[i * K + k] * B[k * N + j];
            C[i * N + j] = s;
#endif
        }
#endif
}
"""
NAIVE = """
extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float s = 0;
            for (int k = 0; k < K; k++) s += A[i * K + k] * B[k * N + j];
            C[i * N + j] = s;
        }
}
"""
TASK = """
task:
  name: gemm
  baseline: gemm.cpp
  reference: gemm.py
  dims: {M: 64, N: 64, K: 64}
  tensors:
    A: {shape: [M, K], dtype: float32, init: normal}
    B: {shape: [K, N], dtype: float32, init: normal}
    C: {shape: [M, N], dtype: float32, role: out}
  tolerance: {atol: 1.0e-3, rtol: 1.0e-3}
measure: {warmup_ms: 1, min_time_s: 0.01}
"""


def gain(speedup: float, width: float = 1.1) -> Comparison:
    """A comparison with a baseline of 12 ms."""
    ms = 12 / speedup
    numbers = Gain(
        speedup=speedup,
        low=speedup / width,
        high=speedup * width,
        a_ms=12,
        b_ms=ms,
        delta_ms=12 - ms,
        delta_low_ms=12 - ms,
        delta_high_ms=12 - ms,
    )
    return numbers.comparison()


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda found: found.name)
def test_a_recorded_landscape_is_of_the_kernels_and_the_task_that_are_there(recorded: Landscape) -> None:
    wanted = wanted_landscapes()[recorded.name]
    config = wanted.load()
    kernels = read_kernels(wanted, config, get_backend(backend_name(config)))
    assert recorded.identity.kernels == tuple(kernel.about for kernel in kernels)
    assert recorded.dims == dict(config.task.dims)
    assert recorded.sittings, "no sitting says when and where it was measured"


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda found: found.name)
def test_a_recorded_landscape_is_whole_and_its_switches_are_honest(recorded: Landscape) -> None:
    for kernel in recorded.identity.kernels:
        combinations = {frozenset(p.methods) for p in recorded.points if p.kernel == kernel.name}
        assert combinations == {frozenset(on) for on in landscape.subsets(kernel.methods)}
        all_off = recorded.outcome(recorded.by_place[kernel.name, frozenset()])
        assert isinstance(all_off, Comparison)
        assert all_off.high >= 1 - AUDIT_TOLERANCE, "with all switches off it is slower than the baseline"
    assert set(recorded.codes) <= {p.code for p in recorded.points}
    assert max(c.gain.speedup for c in recorded.codes.values() if c.gain) > 1 + recorded.smallest_gain


def test_there_are_landscapes_of_several_families() -> None:
    assert len({found.family for found in RECORDED}) >= 4


def test_two_kernels_are_compared_by_what_each_is_to_the_baseline() -> None:
    found = between(gain(2.0), gain(6.0))
    assert found.speedup == pytest.approx(3.0)
    assert found.b_ms == 2.0
    assert found.delta_ms == pytest.approx(4.0)
    assert math.log(found.high / found.speedup) == pytest.approx(math.sqrt(2) * math.log(1.1))


def test_a_switch_that_is_no_methods_is_named(tmp_path: Path) -> None:
    kernel = tmp_path / "k.cpp"
    kernel.write_text("#if RC_NO_SUCH_THING\n#endif\n")
    wanted = Wanted(config="quickstart", kernels=(str(kernel),))
    with pytest.raises(ConfigError, match="RC_NO_SUCH_THING is no known method's switch"):
        read_kernels(wanted, wanted.load(), get_backend("cpp"))


@pytest.mark.timed
def test_measuring_stops_at_its_time_goes_on_where_it_stopped_and_refuses_other_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"gemm.cpp": NAIVE, "gemm.py": GEMM_REFERENCE, "task.yaml": TASK, "fast.cpp": SWITCHED}.items():
        (tmp_path / name).write_text(text)
    listed = tmp_path / "list.yaml"
    listed.write_text(f"small: {{config: {tmp_path}/task.yaml, kernels: [{tmp_path}/fast.cpp]}}\n")
    monkeypatch.setattr(landscape, "wanted_landscapes", lambda: wanted_landscapes(listed))

    def measure(*options: str) -> int | str | None:
        monkeypatch.setattr(sys, "argv", ["landscape.py", "small", "--output", str(tmp_path), *options])
        with pytest.raises(SystemExit) as ended:
            landscape.main()
        return ended.value.code

    assert measure("--seconds", "0") == landscape.UNFINISHED
    assert load(tmp_path / "small.json").codes == {}
    assert measure("--note", "a test") == 0
    found = load(tmp_path / "small.json")
    assert [s.note for s in found.sittings] == ["", "a test"]
    by_methods = {p.methods: p for p in found.points}
    assert by_methods[()].code == BASELINE
    unroll, interchange = by_methods[("compute.loop_unroll",)], by_methods[("memory.loop_interchange",)]
    refused = found.codes[unroll.code].refused
    assert refused is not None
    assert refused.stage == "verify"
    assert found.codes[interchange.code].gain is not None
    # Interchanged, the other switch decides nothing.
    assert by_methods[("memory.loop_interchange", "compute.loop_unroll")].code == interchange.code
    (tmp_path / "fast.cpp").write_text(SWITCHED + "// another\n")
    assert measure() == ConfigError.exit_code
