"""NVIDIA's own reader of reports against the pages that ncu prints of them, over real kernels: a user would lose a
number or a rule that one of them has and the other has not."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.cuda_toolchain import find_cudart
from backends.process import run_process
from backends.registry import get_backend
from backends.types import BuildSpec, Built
from profiling.binding import TensorRule, bind
from profiling.gpu_device import GpuFacts
from profiling.harness.harness import Harness
from profiling.ncu import report_child
from profiling.ncu.command import Level, NcuTool, find_ncu, import_command
from profiling.ncu.faults import NcuFault
from profiling.ncu.pages import Launch
from profiling.ncu.report_reader import read_with_python, reader_folder
from profiling.ncu.runner import REPORT, collect, read_pages
from profiling.ncu.tables import find_tables
from profiling.ncu.units import base_unit
from profiling.types import Limits, MeasureSettings, Problem, Tolerance

pytestmark = pytest.mark.gpu
SIZE = 1 << 20
# Two kernels, one of them a template (whose name holds commas) with strided stores and shared memory: rules speak.
KERNEL = """\
#include <cuda_runtime.h>
template <typename T, int N> __global__ void doubled(const T* x, T* y, int n) {
    __shared__ T kept[N];
    const int i = (blockIdx.x * N + threadIdx.x) * 9 % n;
    kept[N - 1 - threadIdx.x] = x[i];
    __syncthreads();
    y[i] = 2 * kept[N - 1 - threadIdx.x];
}
__global__ void again(float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] * sqrtf(1.0f);
}
extern "C" void solve(const float* x, float* y, int n) {
    doubled<float, 256><<<n / 256, 256>>>(x, y, n);
    again<<<(n + 95) / 96, 96>>>(y, n);
}
"""


@pytest.fixture(scope="module")
def ncu() -> NcuTool:
    try:
        found = find_ncu()
    except NcuFault as fault:
        pytest.skip(str(fault))
    if reader_folder(found) is None:
        pytest.skip(f"no ncu_report beside {found.path}")
    return found


@pytest.fixture(scope="module")
def command(gpu: GpuFacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], dict[str, str]]]:
    folder = tmp_path_factory.mktemp("reader")
    (folder / "reference.py").write_text("def reference(x, y, n):\n    y.copy_(2 * x)\n")
    (folder / "kernel.cu").write_text(KERNEL)
    backend, spec = get_backend("cuda"), BuildSpec(arch=gpu.arch)
    signature = backend.signature(folder / "kernel.cu", spec)
    rules = {"x": TensorRule(("n",), "float32", "in"), "y": TensorRule(("n",), "float32", "out")}
    problem = Problem(
        name="doubled",
        signature=signature,
        timed=bind(signature, {"n": SIZE}, rules, {}),
        checks=(),
        reference=folder / "reference.py",
        tolerance=Tolerance(1e-5, 1e-5),
        backend="cuda",
        gpu=gpu.uuid,
    )
    built = backend.build(folder / "kernel.cu", spec, folder / "builds")
    assert isinstance(built, Built), built
    cudart = find_cudart()
    environment = {"ROOFCLIMB_CUDART": str(cudart)} if cudart else {}
    with Harness(problem, MeasureSettings(), Limits(), folder / "cache", environment=environment) as harness:
        yield harness.profiled_command(built.artifact), dict(harness.profiled_environment())


@pytest.mark.parametrize("level", ["targeted", "full"])
def test_reader_and_pages_say_the_same(
    ncu: NcuTool, command: tuple[list[str], dict[str, str]], tmp_path: Path, level: Level
) -> None:
    argv, environment = command
    try:
        collect(argv, folder=tmp_path, level=level, timeout_s=300.0, environment=environment)
    except NcuFault as fault:
        if fault.kind == "permission":
            pytest.skip(str(fault))
        raise
    start = time.monotonic()
    read = read_with_python(ncu, tmp_path / REPORT, 60.0)
    middle = time.monotonic()
    printed = read_pages(tmp_path / REPORT, 120.0, ncu)
    print(f"\n{level}: reader {middle - start:.2f} s, pages {time.monotonic() - middle:.2f} s")
    assert read is not None, f"the reader is there and was not understood: {_said(ncu, tmp_path / REPORT)}"
    assert [(x.name, x.grid, x.block, x.id) for x in read.launches] == [
        (x.name, x.grid, x.block, x.id) for x in printed.launches
    ]
    assert len(read.launches) == 2
    assert (read.rules, read.warnings) == (printed.rules, printed.warnings)
    steps = _steps(ncu, tmp_path / REPORT)
    differing = [
        line for pair in zip(read.launches, printed.launches, strict=True) for line in _differing(*pair, steps)
    ]
    assert not differing, "\n".join(differing)


def test_what_the_harness_takes_is_the_readers(
    ncu: NcuTool, command: tuple[list[str], dict[str, str]], tmp_path: Path
) -> None:
    argv, environment = command
    found = collect(argv, folder=tmp_path, level="targeted", timeout_s=300.0, environment=environment)
    assert found.pages == read_with_python(ncu, tmp_path / REPORT, 60.0)


def _said(ncu: NcuTool, report: Path) -> str:
    child = [sys.executable, "-I", "-S", report_child.__file__, str(reader_folder(ncu)), str(report)]
    done = run_process(child, timeout_s=60.0)
    rules = [rule for launch in json.loads(done.stdout or '{"launches": []}')["launches"] for rule in launch["rules"]]
    return f"exit {done.returncode}, {done.stderr[-2000:]}, {len(done.stdout)} characters, rules {rules}"


def _steps(ncu: NcuTool, report: Path) -> dict[str, float]:
    """What the last digit that the raw page prints of each metric is worth, in base units."""
    text = run_process(import_command(ncu, report, "raw"), timeout_s=120.0, max_output_bytes=64 << 20).stdout
    return {name: base_unit(unit)[0] * 1e-6 for table in find_tables(text) for name, unit in table.units.items()}


def _differing(read: Launch, printed: Launch, steps: dict[str, float]) -> Iterator[str]:
    for name in sorted({*read.metrics, *printed.metrics}):
        one, other = read.metrics.get(name), printed.metrics.get(name)
        if one is None or other is None or one != pytest.approx(other, rel=1e-6, abs=steps.get(name, 0.0)):
            yield f"{read.name} {name}: reader {one} {read.units.get(name)}, page {other} {printed.units.get(name)}"
        elif read.units[name] != printed.units[name]:
            yield f"{read.name} {name}: reader {read.units[name]!r}, page {printed.units[name]!r}"
    if set(read.missing) != set(printed.missing):
        yield f"{read.name} missing: reader {sorted(read.missing)}, page {sorted(printed.missing)}"
