"""Kernels of a few microseconds on a real GPU: batches tell apart what single calls cannot, and cannot be gamed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from profiling.binding import bind
from profiling.findings import Comparison
from profiling.gpu_device import find_gpu
from tests.gpu.test_harness import REFERENCE, Lab, build, kernel, open_lab, problem

pytestmark = pytest.mark.gpu

SPIN = """
__global__ void spin(const float* x, float* y, float a, int n, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float work = x[i];
    for (int turn = 0; turn < turns; turn++) work = work * 0.5f + 1.0f;
    y[i] = work == -1.0f ? 0.0f : a * x[i] + 1;  // it never is, but no compiler knows
}
"""
# Only the harness waits for the side streams. A batch runs eight calls side by side; one call is as long as ever.
SIDE_BY_SIDE = """
    static cudaStream_t sides[8];
    static int next;
    cudaStream_t& side = sides[next++ % 8];
    if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    spin<<<(n + 255) / 256, 256, 0, side>>>(x, y, a, n, 4000);
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder, gpu = tmp_path_factory.mktemp("batches"), find_gpu(0)
    honest = build(short(100), folder, "honest", gpu)
    # A few blocks: most of the GPU is idle, as it is under the smallest kernels.
    task = problem(short(100), folder, gpu, REFERENCE)
    few = bind(task.signature, {"n": 4096}, {}, {"a": 1.5})
    with open_lab(replace(task, timed=few, checks=()), folder) as harness:
        harness.check_task(honest)
        yield Lab(harness, folder, gpu, honest)


def short(turns: int) -> str:
    return kernel(f"spin<<<(n + 255) / 256, 256>>>(x, y, a, n, {turns});", SPIN)


def compared(lab: Lab, a: str, b: str, name: str) -> Comparison:
    found = lab.harness.compare(lab.build(a, f"{name}-a"), lab.build(b, f"{name}-b"))
    assert isinstance(found, Comparison), found
    print(name, found.speedup, found.low, found.high, found.a_ms, found.batch)
    return found


def test_a_kernel_of_a_few_microseconds_can_be_told_from_one_that_is_a_little_faster(lab: Lab) -> None:
    spread = lab.harness.aa_spread(lab.build(short(4000), "same"))
    assert isinstance(spread, float), spread
    print("A/A", spread)
    assert spread < 0.04
    found = compared(lab, short(4200), short(4000), "five percent")
    assert found.batch > 1
    assert found.a_ms < 0.05
    assert found.low > 1
    assert 1.01 < found.speedup < 1.07


def test_calls_that_run_side_by_side_gain_nothing(lab: Lab) -> None:
    found = compared(lab, short(4000), kernel(SIDE_BY_SIDE, SPIN), "side by side")
    assert found.batch == 1
    assert found.low <= 1.02


def test_a_needless_synchronisation_costs_a_microsecond_or_two_and_no_batch_makes_more_of_it(lab: Lab) -> None:
    waits = kernel("spin<<<(n + 255) / 256, 256>>>(x, y, a, n, 4000); cudaDeviceSynchronize();", SPIN)
    found = compared(lab, waits, short(4000), "synchronised")
    assert abs(found.a_ms - found.b_ms) < 0.003
    assert found.low <= 1.02
