"""What a kernel's author is told on a real GPU, and that one kernel's fault is nobody else's."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backends.cuda_toolchain import find_cudart
from backends.registry import get_backend
from backends.types import BuildSpec, Built
from profiling.binding import TensorRule, bind
from profiling.findings import Comparison, Evaluation
from profiling.gpu_device import GpuFacts, find_gpu
from profiling.harness.harness import Harness
from profiling.types import Limits, MeasureSettings, Problem, Tolerance
from tests.leftovers import still_running

pytestmark = pytest.mark.gpu

SETTINGS = MeasureSettings(warmup_ms=5.0, min_time_s=0.02, max_time_s=5.0)
REFERENCE = "def reference(x, y, a, n):\n    y.copy_(a * x + 1)\n"
HEAD = 'extern "C" void solve(const float* x, float* y, float a, int n)'
KERNEL = """
#include <cuda_runtime.h>
__global__ void saxpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + 1;
}
"""
LAUNCH = "saxpy<<<(n + 255) / 256, 256>>>(x, y, a, n);"


def kernel(body: str, before: str = "") -> str:
    return f"{KERNEL}{before}\n{HEAD} {{ {body} }}\n"


BROKEN = {
    "writes beyond its output": (
        kernel("saxpy<<<(n + 256) / 256, 256>>>(x, y, a, n + 1);"),
        "out of bounds: 1 bytes after the end of y",
    ),
    "changes its input": (
        kernel(f"{LAUNCH} cudaMemsetAsync(const_cast<float*>(x), 0, 4);"),
        "changed its input x[0]",
    ),
    "an illegal address": (
        kernel("far<<<1, 1>>>(y);", "__global__ void far(float* y) { y[1ull << 40] = 1; }"),
        "illegal memory access",
    ),
    "a fault after it returned": (
        kernel(f"{LAUNCH} late<<<1, 1>>>(y);", "__global__ void late(float* y) { __nanosleep(1000000); __trap(); }"),
        "CUDA error",
    ),
    "a hang on the device": (
        kernel("spin<<<1, 1>>>(y);", "__global__ void spin(volatile float* y) { while (y[0] != 0.123456f) {} }"),
        "exceeded its time limit",
    ),
    "a hang on the host": (kernel("for (volatile int i = 0;;) i = 0;"), "exceeded its time limit"),
    "a crash": (kernel("*(volatile int*)0 = 1;"), "SIGSEGV"),
    "reads the host's memory": (kernel("float v = x[0]; y[0] = v;"), "SIGSEGV"),
    "does nothing": (kernel(""), "expected"),
    "half of the work": (kernel("saxpy<<<(n / 2 + 255) / 256, 256>>>(x, y, a, n / 2);"), "expected"),
}


SIDE = "static cudaStream_t side; if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking); "
LATE = "__global__ void late() { for (int i = 0; i < 100; i++) __nanosleep(10000); __trap(); }"
# What a candidate may do to the device beyond a wrong answer, and patterns of the reason.
FAULTS = {
    "a device reset": (kernel(f"{LAUNCH} cudaDeviceReset();"), "CUDA error|crashed|ended its process"),
    "a device reset in the middle": (kernel(f"cudaDeviceReset(); {LAUNCH}"), "CUDA error|crashed|expected|ended"),
    "a late fault on a side stream": (kernel(f"{LAUNCH} {SIDE} late<<<1, 1, 0, side>>>();", LATE), "CUDA error"),
    "a fault in a host callback": (
        kernel(
            f"{LAUNCH} cudaLaunchHostFunc(0, fall, nullptr);",
            "static void fall(void*) { *(volatile int*)nullptr = 1; }",
        ),
        "crashed: SIGSEGV",
    ),
    "a callback that never ends": (
        kernel(
            f"{LAUNCH} cudaLaunchHostFunc(0, stay, nullptr);",
            "static void stay(void*) { for (volatile int i = 0;;) i = 0; }",
        ),
        "exceeded its time limit",
    ),
    "a thread that faults the device later": (
        kernel(
            f"{LAUNCH} static bool started; if (!started) std::thread(later).detach(); started = true;",
            "#include <thread>\n#include <unistd.h>\n__global__ void trap() { __trap(); }\n"
            "static void later() { usleep(1000); trap<<<1, 1>>>(); }",
        ),
        "CUDA error|crashed",
    ),
    "a flood of device printf": (
        kernel(
            f"{LAUNCH} say<<<512, 256>>>();",
            '#include <cstdio>\n__global__ void say() { printf("%100d\\n", (int)threadIdx.x); }',
        ),
        "printed more than 1 MiB",
    ),
    "a heap of the device's own": (
        kernel(
            f"{LAUNCH} hold<<<1024, 256>>>();",
            "__global__ void hold() { for (;;) if (!malloc(1 << 20)) { __trap(); } }",
        ),
        "CUDA error",
    ),
}


@dataclass(frozen=True, slots=True)
class Lab:
    harness: Harness
    folder: Path
    gpu: GpuFacts
    honest: Path

    def build(self, source: str, name: str) -> Path:
        return build(source, self.folder, name, self.gpu)


def build(source: str, folder: Path, name: str, gpu: GpuFacts) -> Path:
    path = folder / f"{name}.cu"
    path.write_text(source)
    built = get_backend("cuda").build(path, BuildSpec(arch=gpu.arch), folder / "builds")
    assert isinstance(built, Built), built
    return built.artifact


def problem(source: str, folder: Path, gpu: GpuFacts, reference: str, **roles: TensorRule) -> Problem:
    (folder / "kernel.cu").write_text(source)
    (folder / "reference.py").write_text(reference)
    signature = get_backend("cuda").signature(folder / "kernel.cu", BuildSpec(arch=gpu.arch))
    names = {p.name for p in signature.parameters}
    scalars = {"a": 1.5} if "a" in names else {}
    cases = [bind(signature, {"n": n}, roles or None, scalars) for n in (1 << 22, 1, 1023)]
    return Problem(
        "saxpy", signature, cases[0], tuple(cases[1:]), folder / "reference.py", Tolerance(1e-5, 1e-5),
        backend="cuda", gpu=gpu.uuid,
    )  # fmt: skip


def open_lab(task: Problem, folder: Path) -> Harness:
    runtime = find_cudart()
    environment = {"ROOFCLIMB_CUDART": str(runtime)} if runtime else {}
    return Harness(task, SETTINGS, Limits(call_s=2.0), folder / "cache", environment=environment)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("gpu")
    gpu = find_gpu(0)
    honest = build(kernel(LAUNCH), folder, "honest", gpu)
    with open_lab(problem(kernel(LAUNCH), folder, gpu, REFERENCE), folder) as harness:
        harness.check_task(honest)
        yield Lab(harness, folder, gpu, honest)


def passed(found: Evaluation) -> Evaluation:
    assert (found.verdict, found.reason) == ("pass", None)
    return found


def test_a_right_kernel_passes_with_its_time_by_three_clocks(lab: Lab) -> None:
    found = passed(lab.harness.evaluate(lab.honest))
    assert found.timing is not None
    assert found.timing.outside_ms is not None
    assert found.timing.event_ms is not None
    # 32 MiB at no more than twice the fastest memory there is.
    assert found.timing.median_ms > 32 / 16e3
    assert found.timing.event_ms <= found.timing.median_ms * 1.05 + 0.002


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_kernel_fails_with_the_reason_and_the_next_is_unaffected(lab: Lab, what: str) -> None:
    source, reason = BROKEN[what]
    found = lab.harness.evaluate(lab.build(source, what.replace(" ", "-")))
    assert found.verdict == "fail", found
    assert reason in (found.reason or "")
    passed(lab.harness.evaluate(lab.honest))


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_on_the_device_fails_its_candidate_alone_and_leaves_nothing(lab: Lab, what: str) -> None:
    source, reason = FAULTS[what]
    candidate = lab.build(source, what.replace(" ", "-"))
    before = sorted(lab.folder.rglob("*"))
    found = lab.harness.evaluate(candidate)
    assert found.verdict == "fail", found
    assert re.search(reason, found.reason or ""), found.reason
    assert still_running(lab.folder) == []
    assert sorted(lab.folder.rglob("*")) == before
    passed(lab.harness.evaluate(lab.honest))


ATOMIC = """#include <cuda_runtime.h>
__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&y[i % 64], x[i]);
}
extern "C" void solve(const float* x, float* y, int n) {
    CLEAR
    add<<<(n + 255) / 256, 256>>>(x, y, n);
}
"""
SUMS = "def reference(x, y, n):\n    return x.view(-1, 64).sum(dim=0)\n"


@pytest.mark.parametrize("zeroed", [True, False])
def test_atomics_may_add_into_an_output_that_the_task_zeroes_and_into_no_other(tmp_path: Path, zeroed: bool) -> None:
    gpu = find_gpu(0)
    signature_of = ATOMIC.replace("CLEAR", "cudaMemsetAsync(y, 0, 64 * sizeof(float));")
    rules = {"x": TensorRule(("n",)), "y": TensorRule((64,), zeroed=zeroed)}
    (tmp_path / "kernel.cu").write_text(signature_of)
    (tmp_path / "reference.py").write_text(SUMS)
    signature = get_backend("cuda").signature(tmp_path / "kernel.cu", BuildSpec(arch=gpu.arch))
    case = bind(signature, {"n": 64 * 1000}, rules, {})
    task = Problem(
        "sums", signature, case, (), tmp_path / "reference.py", Tolerance(1e-3, 1e-3), backend="cuda", gpu=gpu.uuid
    )
    with open_lab(task, tmp_path) as harness:
        clears = build(signature_of, tmp_path, "clears", gpu)
        harness.check_task(clears)
        passed(harness.evaluate(clears))
        found = harness.evaluate(build(ATOMIC.replace("CLEAR", ""), tmp_path, "adds", gpu))
        assert (found.verdict, found.reason) == ("pass", None) if zeroed else found.verdict == "fail"


def test_a_hidden_shape_is_checked_and_not_told_and_costs_little(tmp_path: Path) -> None:
    gpu = find_gpu(0)
    known = problem(kernel(LAUNCH), tmp_path, gpu, REFERENCE)
    hidden = [
        replace(bind(known.signature, {"n": n}, None, {"a": 1.5}), secret=True) for n in (65537, 3, (1 << 22) + 4096)
    ]
    task = replace(known, checks=(*known.checks, *hidden))
    spent = {}
    for name, tried in (("known", known), ("hidden", task)):
        with open_lab(tried, tmp_path) as harness:
            honest = build(kernel(LAUNCH), tmp_path, "honest", gpu)
            assert harness.check_task(honest).dropped_checks == ()
            passed(harness.evaluate(honest))
            start = time.perf_counter()
            for _ in range(5):
                passed(harness.evaluate(honest))
            spent[name] = (time.perf_counter() - start) / 5
            if tried is task:
                made_for = kernel(LAUNCH.replace("n);", "n - (n == 65537));"))
                found = harness.evaluate(build(made_for, tmp_path, "made_for", gpu))
                assert found.verdict == "fail"
                assert (found.reason or "").endswith("(declared inputs, a hidden shape)")
    print(f"one evaluation: {spent['known']:.3f} s, with three hidden shapes {spent['hidden']:.3f} s")


def test_work_on_a_stream_of_its_own_counts(lab: Lab) -> None:
    """Else a kernel that returns before its work is done looks fast."""
    slow = "__global__ void slow() { for (int i = 0; i < 100; i++) __nanosleep(10000); }"
    body = f"{LAUNCH} static cudaStream_t s; if (!s) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); "
    found = passed(lab.harness.evaluate(lab.build(kernel(body + "slow<<<1, 1, 0, s>>>();", slow), "stream")))
    assert found.timing is not None
    assert found.timing.event_ms is not None
    assert found.timing.median_ms > 0.5 > found.timing.event_ms


def test_out_of_device_memory_ends_one_candidate_alone(lab: Lab) -> None:
    body = "void* p; while (cudaMalloc(&p, 1ull << 30) == cudaSuccess) {} cudaGetLastError(); "
    body += "if (cudaMalloc(&p, 1ull << 34) != cudaSuccess) { cudaGetLastError(); return; }" + LAUNCH
    assert lab.harness.evaluate(lab.build(kernel(body), "memory")).verdict == "fail"
    passed(lab.harness.evaluate(lab.honest))


def test_a_faster_kernel_is_faster_and_a_copy_is_not(lab: Lab) -> None:
    twice = lab.build(kernel(LAUNCH + LAUNCH), "twice")
    found = lab.harness.compare(twice, lab.honest)
    assert isinstance(found, Comparison), found
    assert found.low > 1.3
    spread = lab.harness.aa_spread(lab.honest)
    assert isinstance(spread, float)
    assert spread < 0.1


def test_a_profiled_command_makes_one_call(lab: Lab) -> None:
    from backends.process import run_process

    done = run_process(
        lab.harness.profiled_command(lab.honest), timeout_s=60.0, env=dict(lab.harness.profiled_environment())
    )
    assert done.returncode == 0, done.stderr


def test_an_input_that_is_also_the_output_is_restored_before_every_call(tmp_path: Path) -> None:
    """Else a kernel that doubles its data in place would be checked on what it left behind."""
    gpu = find_gpu(0)
    source = """#include <cuda_runtime.h>
__global__ void twice(float* d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) d[i] *= 2;
}
extern "C" int solve(float* d, int n) { twice<<<(n + 255) / 256, 256>>>(d, n); return cudaGetLastError(); }
"""
    task = problem(source, tmp_path, gpu, "def reference(d, n):\n    d.mul_(2)\n", d=TensorRule(("n",), role="inout"))
    with open_lab(task, tmp_path) as harness:
        right = build(source, tmp_path, "right", gpu)
        harness.check_task(right)
        passed(harness.evaluate(right))
        code = build(source.replace("return cudaGetLastError()", "return 77"), tmp_path, "code", gpu)
        found = harness.evaluate(code)
        assert found.verdict == "fail"
        assert "returned 77" in (found.reason or "")


def test_a_device_that_is_not_there_is_said(tmp_path: Path) -> None:
    gpu = find_gpu(0)
    task = problem(kernel(LAUNCH), tmp_path, gpu, REFERENCE)
    gone = replace(task, gpu="GPU-00000000-0000-0000-0000-000000000000")
    with pytest.raises(Exception, match=r"torch sees no GPU|is not among"):
        open_lab(gone, tmp_path)
