"""compute-sanitizer over real kernels on a real GPU, as in runs: each fault is found by the tool meant for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.cuda_toolchain import find_cudart
from backends.registry import get_backend
from backends.triton_artifact import write_empty
from backends.types import Backend, BuildSpec, Built
from profiling.binding import TensorRule, bind
from profiling.gpu_device import GpuFacts
from profiling.harness.harness import Harness, TritonParts
from profiling.sanitizers.check import Sanitizers
from profiling.sanitizers.findings import GPU_TOOLS, SanitizerReport
from profiling.sanitizers.gpu import find_sanitizer
from profiling.triton_binding import bind_arguments
from profiling.types import Limits, MeasureSettings, Problem, Tolerance

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_sanitizer() is None, reason="compute-sanitizer is not installed"),
]
SETTINGS = MeasureSettings(warmup_ms=5.0, min_time_s=0.02, max_time_s=5.0)
REFERENCE = "def reference(x, y, n):\n    y.copy_(2 * x)\n"
# 1024 floats: whole blocks of 512 bytes, so that without padding the byte past the end is another tensor's.
SIZE = 1024
HEAD = 'extern "C" void solve(const float* x, float* y, int n)'
TOP = "#include <cuda_runtime.h>\n"
CLEAN = """\
__global__ void doubled(const float* x, float* y, int n) {
    __shared__ float kept[256];
    const int i = blockIdx.x * 256 + threadIdx.x;
    kept[255 - threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = 2 * kept[255 - threadIdx.x];
}
"""
FAULTY = {
    "memcheck": CLEAN.replace("i < n ? x[i] : 0", "x[i + 1] * 0 + x[i]"),
    "racecheck": CLEAN.replace("    __syncthreads();\n", "").replace(
        "2 * kept[255 - threadIdx.x]", "2 * kept[threadIdx.x]"
    ),
    "initcheck": CLEAN.replace("    kept[", "    if (i < n && y[i] == 1.5f) y[i] = 0;\n    kept[", 1),
    "synccheck": CLEAN.replace(
        "    __syncthreads();", "    if (threadIdx.x % 32 >= 16) __syncwarp(0xffff);\n    __syncthreads();"
    ),
}
TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n SLACK, other=0.0)
    tl.store(y + i, 2 * value, mask=i < n)


def setup(n, seed):
    x = torch.randn(n, device="cuda")
    return {"inputs": {"x": x, "y": torch.empty_like(x), "n": n}, "outputs": ["y"]}


def run_kernel(x, y, n):
    doubled[(triton.cdiv(n, 256) + 1,)](x, y, n, BLOCK=256)
"""


@dataclass(frozen=True, slots=True)
class Bed:
    sanitizers: Sanitizers
    folder: Path

    def check(self, source: str) -> SanitizerReport:
        path = self.folder / f"kernel{self.sanitizers.backend.suffix}"
        path.write_text(source)
        built = self.sanitizers.backend.build(path, self.sanitizers.spec, self.sanitizers.cache)
        assert isinstance(built, Built), built
        start = time.monotonic()
        report = self.sanitizers.check(path, built)
        print(f"\n{time.monotonic() - start:.1f} s: {report}")
        return report


@pytest.fixture(scope="module")
def bed(gpu: GpuFacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("sanitizers")
    (folder / "reference.py").write_text(REFERENCE)
    backend = get_backend("cuda")
    spec = BuildSpec(arch=gpu.arch)
    (folder / "kernel.cu").write_text(cuda(CLEAN))
    signature = backend.signature(folder / "kernel.cu", spec)
    rules = {"x": TensorRule(("n",), "float32", "in"), "y": TensorRule(("n",), "float32", "out")}
    timed, small = (bind(signature, {"n": n}, rules, {}) for n in (1 << 20, SIZE))
    problem = Problem(
        name="doubled",
        signature=signature,
        timed=timed,
        checks=(small,),
        reference=folder / "reference.py",
        tolerance=Tolerance(1e-5, 1e-5),
        backend="cuda",
        gpu=gpu.uuid,
    )
    cudart = find_cudart()
    environment = {"ROOFCLIMB_CUDART": str(cudart)} if cudart else {}
    with Harness(problem, SETTINGS, Limits(), folder / "cache", environment=environment) as harness:
        yield Bed(_sanitizers(harness, problem, backend, spec, folder), folder)


@pytest.fixture(scope="module")
def triton_bed(gpu: GpuFacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("sanitizers-triton")
    (folder / "reference.py").write_text(REFERENCE)
    backend = get_backend("triton")
    path = folder / "kernel.py"
    path.write_text(TRITON.replace(" SLACK", ""))
    timed, small = backend.describe_all(path, [{"n": 1 << 20}, {"n": SIZE}], 120.0)  # type: ignore[attr-defined]
    spec = BuildSpec(arch=gpu.arch, arguments=timed, elsewhere=(small,))
    problem = Problem(
        name="doubled",
        signature=backend.signature(path, spec),
        timed=bind_arguments(timed, {"n": 1 << 20}, None, {}),
        checks=(bind_arguments(small, {"n": SIZE}, None, {}),),
        reference=folder / "reference.py",
        tolerance=Tolerance(1e-5, 1e-5),
        backend="triton",
        gpu=gpu.uuid,
    )
    write_empty(folder / "empty", gpu.arch)
    parts = TritonParts(gpu.arch, folder / "cache", folder / "empty")
    with Harness(problem, SETTINGS, Limits(), folder / "cache", triton=parts) as harness:
        yield Bed(_sanitizers(harness, problem, backend, spec, folder), folder)


def _sanitizers(harness: Harness, problem: Problem, backend: Backend, spec: BuildSpec, folder: Path) -> Sanitizers:
    return Sanitizers(harness, problem, backend, spec, folder / "builds", threads=1)


def cuda(kernel: str) -> str:
    return f"{TOP}{kernel}{HEAD} {{ doubled<<<(n + 255) / 256, 256>>>(x, y, n); }}\n"


def test_a_clean_kernel_is_clean_to_all_four(bed: Bed) -> None:
    assert bed.check(cuda(CLEAN)) == SanitizerReport(GPU_TOOLS, (), ())


@pytest.mark.parametrize("tool", FAULTY)
def test_each_fault_is_found_by_its_tool_with_a_line_of_the_kernel(bed: Bed, tool: str) -> None:
    report = bed.check(cuda(FAULTY[tool]))
    found = [f for f in report.findings if f.tool == tool]
    assert found, report
    assert (found[0].where or "").startswith("kernel.cu:"), found
    # A kernel that leaves a wrong barrier by a trap never comes to its end under the others.
    assert tool == "synccheck" or report.unavailable == ()


def test_a_read_by_one_element_past_an_input_names_the_input(bed: Bed) -> None:
    found = [f for f in bed.check(cuda(FAULTY["memcheck"])).findings if f.tool == "memcheck"]
    assert "1 bytes after x" in found[0].message


def test_a_triton_kernel_that_reads_past_its_input_is_found(triton_bed: Bed) -> None:
    assert triton_bed.check(TRITON.replace(" SLACK", "")) == SanitizerReport(GPU_TOOLS, (), ())
    report = triton_bed.check(TRITON.replace("n SLACK", "n + 1"))
    assert report.findings[0].tool == "memcheck"
