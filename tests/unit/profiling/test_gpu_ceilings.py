"""Ceilings of a GPU: what is made of the measured rates, how they are kept, and that the probes do their work."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backends.types import ToolchainError
from profiling.ceilings_cache import load_ceilings, save_ceilings
from profiling.findings import Ceilings
from profiling.gpu_ceilings import LANES, Measured, Report, ceilings_file, measure_gpu_ceilings, settle, to_ceilings
from profiling.gpu_device import GpuFacts
from profiling.gpu_tools import find_gpu_tool
from tests.unit.profiling.gpu_driver import build_driver, needs_compiler, run_with_driver

ROOT = Path(__file__).parents[3]
H200 = GpuFacts(
    index=0, uuid="GPU-1234", name="NVIDIA H200", arch="sm_90", driver_version="580.65.06", sm_count=132,
    max_sm_clock_hz=1980e6, memory_clock_hz=3201e6, memory_bus_bits=6144,
)  # fmt: skip
QUIET = {"foreign_processes": "0"}
RATES = {
    "copy": 4.28e12, "read_triton": 4.47e12, "read_torch": 4.40e12, "read_l2": 7.5e12, "fma_float32": 6.4e13,
    "fma_float64": 3.2e13, "fma_float16": 1.28e14, "product_float64": 6.0e13, "product_float16": 7.9e14,
    "product_bfloat16": 7.94e14, "product_tf32": 4.35e14, "product_float8": 1.4e15, "product_int8": 1.3e15,
}  # fmt: skip


def report(**changes: float | None) -> Report:
    rates = {**RATES, **changes}
    versions = {"torch": "2.13.0", "triton": "3.9.0", "cuda": "13.0"}
    measured = tuple(
        Measured(probe=name, missing="no kernel image") if rate is None else Measured(probe=name, rate=rate)
        for name, rate in rates.items()
    )
    return Report(measured=measured, versions=versions)


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_fastest_pipe_and_the_faster_reading_count() -> None:
    """A float64 kernel on the tensor pipes, or a reduction, must not look better than possible."""
    found = to_ceilings(report(), H200, QUIET)
    assert (found.copy_bytes, found.read_bytes, found.cache_bytes) == (4.28e12, 4.47e12, 7.5e12)
    assert found.flops == {
        "float32": 6.4e13, "float64": 6.0e13, "tf32": 4.35e14, "float16": 7.9e14, "bfloat16": 7.94e14,
        "float8": 1.4e15, "int8": 1.3e15,
    }  # fmt: skip
    for key in ("device", "driver", "torch", "date", "method", "fma_float16", "arch"):
        assert found.provenance[key], key
    assert found.provenance["unsettled"] == found.provenance["missing"] == ""


def test_theoretical_peaks_are_the_data_sheets() -> None:
    """NVIDIA's own numbers for the H200 at its highest clock, 1980 MHz: 66.9 TFLOP/s fp32, 4.9 TB/s."""
    found = to_ceilings(report(), H200, QUIET)
    assert found.theoretical_bytes == pytest.approx(4.917e12, rel=1e-3)
    expected = {"float32": 66.9e12, "float64": 66.9e12, "tf32": 535e12, "bfloat16": 1070e12, "float8": 2141e12}
    for dtype, peak in expected.items():
        assert found.theoretical_flops[dtype] == pytest.approx(peak, rel=1e-3), dtype


@pytest.mark.parametrize(
    ("arch", "sms", "boost_hz", "dtype", "data_sheet"),
    [
        ("sm_70", 80, 1530e6, "float16", 125e12),
        ("sm_75", 40, 1590e6, "int8", 130e12),
        ("sm_80", 108, 1410e6, "float16", 312e12),
        ("sm_80", 108, 1410e6, "float64", 19.5e12),
        ("sm_86", 84, 1740e6, "tf32", 74.8e12),
        ("sm_89", 142, 2520e6, "float8", 733e12),
        ("sm_90", 132, 1830e6, "bfloat16", 989e12),
        ("sm_90", 132, 1830e6, "int8", 1979e12),
        ("sm_100", 148, 1850e6, "float8", 4500e12),
        ("sm_120", 188, 2617e6, "float16", 503.8e12),
    ],
)
def test_lane_counts_give_the_published_dense_rates(
    arch: str, sms: int, boost_hz: float, dtype: str, data_sheet: float
) -> None:
    """V100, T4, A100, A40, L40S, H100 SXM, B200 and RTX PRO 6000, as their data sheets have them."""
    assert 2 * LANES[arch][dtype] * sms * boost_hz == pytest.approx(data_sheet, rel=0.015)


def test_theoretical_peaks_are_never_below_what_was_measured() -> None:
    """Else an honest kernel would be called suspect."""
    rates = {name: 3 * rate for name, rate in RATES.items()}
    found = to_ceilings(report(**rates), H200, QUIET)
    assert found.theoretical_bytes == 2 * found.read_bytes
    for dtype, rate in found.flops.items():
        assert found.theoretical_flops[dtype] >= rate, dtype


def test_an_unknown_chip_gets_what_was_measured_and_a_margin() -> None:
    """Never a default row."""
    for gpu in (replace(H200, arch="sm_77"), replace(H200, sm_count=None, memory_clock_hz=None)):
        found = to_ceilings(report(), gpu, QUIET)
        assert found.theoretical_flops["float32"] == 2 * 6.4e13
    assert found.theoretical_bytes == 2 * 4.47e12


def test_what_was_not_measured_is_absent_and_says_why() -> None:
    found = to_ceilings(report(product_float8=None, product_float64=None, read_l2=None), H200, QUIET)
    assert "float8" not in found.flops
    assert "float8" not in found.theoretical_flops
    assert found.flops["float64"] == 3.2e13, "its other pipe was measured"
    assert found.cache_bytes is None
    assert "product_float8: no kernel image" in found.provenance["missing"]


def test_no_bandwidth_is_an_error_with_the_reason() -> None:
    with pytest.raises(ToolchainError, match=r"NVIDIA H200.*copy: no kernel image"):
        to_ceilings(report(copy=None), H200, QUIET)
    with pytest.raises(ToolchainError, match="read_torch: no kernel image"):
        to_ceilings(report(read_triton=None, read_torch=None), H200, QUIET)
    assert to_ceilings(report(read_triton=None), H200, QUIET).read_bytes == 4.40e12
    with pytest.raises(ToolchainError, match=r"built without CUDA; install a torch build .* driver 580"):
        to_ceilings(Report(fault="torch 2.13 is built without CUDA"), H200, QUIET)


def test_ceilings_are_kept_by_gpu_driver_and_version(tmp_path: Path) -> None:
    """Those of another GPU, or of another driver, would make a roofline of fiction."""
    path = ceilings_file(tmp_path, H200)
    others = (replace(H200, uuid="GPU-5"), replace(H200, driver_version="590"), replace(H200, sm_count=16))
    assert len({path, *(ceilings_file(tmp_path, other) for other in others)}) == 4
    kept = to_ceilings(report(), H200, {**QUIET, "mark": "from the cache"})
    save_ceilings(path, kept)
    assert measure_gpu_ceilings(tmp_path, H200) == kept
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no partial file is left behind"


@pytest.mark.parametrize("foreign", [True, False])
def test_what_did_not_settle_is_measured_again_after_an_hour(tmp_path: Path, foreign: bool) -> None:
    """A minute in which somebody else used the GPU must not spoil every later run."""
    beside = {"foreign_processes": "1" if foreign else "unknown"}
    shaky = Report(measured=(*report().measured, Measured(probe="read_l2", rate=7e12, spread=0.0 if foreign else 0.2)))
    found = to_ceilings(shaky, H200, beside)
    assert ("other processes" if foreign else "read_l2") in found.provenance["unsettled"]
    path = tmp_path / "ceilings.json"
    save_ceilings(path, found)
    assert load_ceilings(path) == found
    ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2)
    old = Ceilings(
        found.copy_bytes, found.read_bytes, found.cache_bytes, found.flops, found.theoretical_flops,
        found.theoretical_bytes, {**found.provenance, "date": ago.isoformat()},
    )  # fmt: skip
    save_ceilings(path, old)
    assert load_ceilings(path) is None
    path.write_text("{")
    assert load_ceilings(path) is None


@needs_compiler
def test_a_torch_that_cannot_use_the_gpu_is_one_clear_line(tmp_path: Path) -> None:
    """The real child process with the real torch: here it has no CUDA, or no such GPU."""
    (tmp_path / "driver").mkdir()
    said = run_with_driver(
        build_driver(tmp_path / "driver"),
        "from pathlib import Path\n"
        "from profiling.gpu_ceilings import measure_gpu_ceilings\n"
        "from profiling.gpu_device import find_gpu\n"
        f"measure_gpu_ceilings(Path({str(tmp_path / 'cache')!r}), find_gpu(0))",
    )
    assert said.startswith("ToolchainError: the ceilings of GPU 0 (NVIDIA H200) cannot be measured: torch ")
    assert importlib.metadata.version("torch") in said
    assert "install a torch build" in said
    assert "\n" not in said
    assert not list(tmp_path.glob("cache/*.json"))


def test_the_probes_compute_what_their_checks_demand_and_skipped_work_is_caught() -> None:
    """On Triton's interpreter and the CPU: a ceiling of work that was not done is beyond any kernel's reach."""
    said = run_python(
        """
import torch
from profiling import gpu_ceilings_child as child

def caught(check):
    try:
        check()
    except child.WrongResultError:
        return True
    return False

for dtype in ("float32", "float64", "float16"):
    launch, check = child.fma(dtype, 3, "cpu", block=64)
    assert caught(check), dtype
    launch()
    check()
source = torch.ones(8 * 64)
launch, check = child.read(source, 21, 4, block=64)
assert caught(check)
launch()
check()
for dtype in ("float16", "int8", "bfloat16", "tf32", "float64", "float8"):
    product = child.product(dtype, 64, "cpu")
    product.check()
    lazy = child.Product(product.left, product.right, lambda: torch.zeros(64, 64))
    assert caught(lazy.check), dtype
print("fine")
""",
        TRITON_INTERPRET="1",
    )
    assert said == "fine\n"


def test_repeats_go_on_until_the_two_best_agree_or_time_is_up() -> None:
    """One lucky repeat is no ceiling."""
    noisy = iter([1.0, 5.0, 3.0, 2.0, 4.0, 4.0, 4.96, 9.0])
    assert settle(lambda: next(noisy), limit_s=60.0) == pytest.approx((5.0, 0.008))
    assert next(noisy) == 9.0
    rising = iter(range(1, 100))
    assert settle(lambda: float(next(rising)), limit_s=0.0) == pytest.approx((5.0, 0.2))


COMPILE = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from profiling.gpu_ceilings_child import _BLOCK, _UNROLL, _WARPS, fma_kernel, read_kernel

def build(fn, signature, constants, name):
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(fn=fn, signature=types, constexprs=constants, attrs={(0,): [["tt.divisibility", 16]]})
    for capability in (80, 90, 100):
        target = GPUTarget("cuda", capability, 32)
        with open(f"{name}_{capability}.cubin", "wb") as file:
            file.write(triton.compile(source, target=target, options={"num_warps": _WARPS}).asm["cubin"])

for name, dtype in (("float32", tl.float32), ("float64", tl.float64), ("float16", tl.float16)):
    operands = {"sums": "*fp32", "operands": "*fp32", "rounds": "i32"}
    build(fma_kernel, operands, {"BLOCK": _BLOCK, "UNROLL": _UNROLL, "DTYPE": dtype}, name)
read = {"source": "*fp32", "sums": "*fp32", "tiles": "i32", "visits": "i32"}
build(read_kernel, read, {"BLOCK": _BLOCK}, "read")
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the probes as Triton compiles them for GPUs that are not here."""
    folder = tmp_path_factory.mktemp("probes")
    env = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    env.pop("TRITON_INTERPRET", None)
    subprocess.run([sys.executable, "-c", COMPILE], cwd=folder, env=env, check=True)
    return folder


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_the_machine_code_of_the_probes_is_the_work_that_is_counted(compiled: Path, capability: int) -> None:
    """16 chains of 16 steps per thread and round, two float16 (on sm_100 two float32) to an instruction; wide loads."""
    cuobjdump = find_gpu_tool("cuobjdump")
    if cuobjdump is None:
        pytest.skip("needs cuobjdump")

    def count(name: str, pattern: str) -> int:
        dump = [str(cuobjdump), "--dump-sass", str(compiled / f"{name}_{capability}.cubin")]
        sass = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
        assert not re.search(r"\b(?:LDL|STL)\b", sass), "nothing is spilled"
        return len(re.findall(rf"\s{pattern}\s", sass))

    assert count("float32", "FFMA") + 2 * count("float32", "FFMA2") == 256
    assert count("float64", "DFMA") == 256
    assert count("float16", r"HFMA2(?:\.MMA)?") == pytest.approx(128, abs=2), "one may build a constant"
    assert count("read", r"LDG\.E\.128\.STRONG\.GPU") == 4
