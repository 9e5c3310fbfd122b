"""Who is to blame when the oracle has no memory left: a kernel that keeps it, or dims that are too large."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiling.harness.arena import RandomBytes, memory_available
from profiling.harness.bench import Bench, Rig
from profiling.harness.inputs import Draw, Pools
from profiling.harness.launcher import NativeLauncher
from profiling.harness.memory import Host
from profiling.harness.runner_build import Native, build_flush, build_native
from profiling.harness.timing import Timer
from profiling.harness.verify import Verifier
from profiling.harness.worker import CandidateFailure
from profiling.types import Limits, MeasureSettings, TaskError
from tests.kernels import GEMM_FAST, GEMM_SIGNATURE, compile_kernel, gemm_problem


class Full(Host):
    """The host, whose memory is said to be used up; `free` is what it has at each question."""

    free: Iterator[int]

    def available(self) -> int:
        return next(self.free)

    def settle(self) -> None:
        raise TaskError("the GPU is out of memory: use smaller dims")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return build_native(GEMM_SIGNATURE, tmp_path_factory.mktemp("bench"))


def rig_on(device: Host, native: Native, folder: Path) -> Rig:
    """A small product's, without a reference."""
    rng = random.Random(1)
    return Rig(
        problem=gemm_problem(folder),
        reference=None,
        tolerance=None,
        empty=native.empty,
        device=device,
        launcher=NativeLauncher(native.runner, {}),
        limits=Limits(call_s=5.0),
        cores=tuple(sorted(os.sched_getaffinity(0))[:1]),
        noise=RandomBytes(rng),
        pools=Pools(rng),
        seed=lambda: 1,
        phase=lambda name, limit_s: None,
    )


def run(native: Native, folder: Path, given_back: int) -> None:
    """One call of a kernel whose end gives `given_back` bytes back."""
    device = Full(build_flush(folder), memory_available)
    device.free = itertools.chain((1 << 34, 1 << 20, 1 << 20), itertools.repeat((1 << 20) + given_back))
    rig = rig_on(device, native, folder)
    draw = Draw(1, "declared")
    case = rig.problem.timed
    with Bench(rig, compile_kernel(GEMM_FAST, folder, "fast"), case, slots=1) as bench:
        bench.frame([(draw, rig.inputs(case).make(draw))], ["a check"], cold=False)


def test_a_kernel_that_keeps_the_memory_fails_alone(native: Native, tmp_path: Path) -> None:
    """One that allocates in every call and frees nothing is common: it must not end the run as the task's fault."""
    with pytest.raises(CandidateFailure, match=r"held 40\.0 GiB of memory of its own, which left too little"):
        run(native, tmp_path, 40 << 30)


def test_dims_that_are_too_large_stay_the_tasks_fault(native: Native, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="use smaller dims"):
        run(native, tmp_path, 1 << 29)


def test_calls_that_took_long_before_do_not_keep_the_outside_clock_from_seeing_short_ones(
    native: Native, tmp_path: Path
) -> None:
    """A round of one or two calls of 0.1 ms shows less than what waking a worker varies."""
    slow = GEMM_FAST.replace("{", "{\n    static int calls = 0;\n    if (calls++ < 2) usleep(30000);", 1)
    kernel = compile_kernel(f"#include <unistd.h>\n{slow}", tmp_path, "slow_at_first")
    rig = rig_on(Host(build_flush(tmp_path), memory_available), native, tmp_path)
    timer = Timer(rig, MeasureSettings(warmup_ms=1.0, min_time_s=0.005), Verifier(rig))
    times, _, check = timer.measure(kernel)
    assert times is not None, check
    assert min(sum(f.own_ns) / len(f.own_ns) for f in times.frames) * times.rounds[0].n >= 500_000
