"""What one GPU can do, measured by `profiling.gpu_ceilings_child` in a process of its own and cached with provenance.

Rates are the best of several repeats, for the reason given in `profiling.ceilings`. The *theoretical* rates exist only
to tell an impossible time from a fast one. They are the chip's own: SMs x highest clock x multiply-adds per cycle x 2,
and memory clock x bus width x 2 / 8. Where the chip is not known, or its numbers are below what was measured, they are
`MARGIN` times the measured rate. The memory's rate holds for what comes from memory: data that stays in L2, as what a
kernel writes may, moves faster.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib.metadata
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from backends.host_compiler import search_path
from backends.process import run_process
from backends.types import ToolchainError
from profiling.ceilings import MARGIN
from profiling.ceilings_cache import load_ceilings, now, save_ceilings
from profiling.exclusive import exclusive_timing
from profiling.findings import Ceilings
from profiling.gpu_device import GpuFacts, sample

_VERSION = 2
_ROOT = Path(__file__).resolve().parents[1]
_CHILD = Path(__file__).with_name("gpu_ceilings_child.py")
_SERVE = "import sys; sys.path[:] = filter(None, sys.path); from profiling.gpu_ceilings_child import main; main()"
_LIMIT_S = 180.0  # `import torch` alone can take a minute from a network drive
_REPEATS, _AGREE, _SETTLED = 5, 0.02, 0.05

_READS = ("read_triton", "read_torch")
_PROBES: Mapping[str, tuple[str, ...]] = {
    "float32": ("fma_float32",),
    "float64": ("fma_float64", "product_float64"),
    "tf32": ("product_tf32",),
    "float16": ("fma_float16", "product_float16"),
    "bfloat16": ("product_bfloat16",),
    "float8": ("product_float8",),
    "int8": ("product_int8",),
}
"""By arithmetic, what measures it: the fastest pipe counts."""

LANES: Mapping[str, Mapping[str, int]] = {
    "sm_70": {"float32": 64, "float64": 32, "float16": 512},
    "sm_75": {"float32": 64, "float64": 2, "float16": 512, "int8": 1024},
    "sm_80": {"float32": 64, "float64": 64, "tf32": 512, "float16": 1024, "bfloat16": 1024, "int8": 2048},
    "sm_86": {"float32": 128, "float64": 2, "tf32": 256, "float16": 512, "bfloat16": 512, "int8": 1024},
    "sm_89": {
        "float32": 128, "float64": 2, "tf32": 256, "float16": 512, "bfloat16": 512, "float8": 1024, "int8": 1024,
    },
    "sm_90": {
        "float32": 128, "float64": 128, "tf32": 1024, "float16": 2048, "bfloat16": 2048, "float8": 4096, "int8": 4096,
    },
    "sm_100": {
        "float32": 128, "float64": 64, "tf32": 2048, "float16": 4096, "bfloat16": 4096, "float8": 8192, "int8": 8192,
    },
    "sm_120": {
        "float32": 128, "float64": 2, "tf32": 256, "float16": 512, "bfloat16": 512, "float8": 1024, "int8": 1024,
    },
}  # fmt: skip
"""Dense multiply-adds per cycle and SM of the fastest pipe, tensor pipes included.

Vector pipes: CUDA C++ Programming Guide, "Arithmetic Instructions". Tensor pipes: NVIDIA's architecture white papers
and data sheets (V100, T4, A100, A40, L40S, H100, B200, RTX PRO 6000), their dense rate / (SMs x boost clock x 2).
"""


class Measured(BaseModel):
    """One probe of the child.

    Attributes:
        probe: its name.
        rate: bytes or operations per second; None where it failed.
        spread: how far the second best repeat is below the best, 0-1.
        note: the size it was measured at.
        missing: why there is no rate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    probe: str
    rate: float | None = None
    spread: float = 0.0
    note: str = ""
    missing: str | None = None


class Report(BaseModel):
    """All that the child says: `fault` where it could not begin."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fault: str | None = None
    versions: Mapping[str, str] = {}
    measured: tuple[Measured, ...] = ()


def measure_gpu_ceilings(cache_dir: Path, gpu: GpuFacts) -> Ceilings:
    """Ceilings of one GPU: from `cache_dir` if this driver, torch and Triton measured them before, else measured now.

    A measurement takes 5 to 10 s, most of it spent importing torch; a second call takes none. What cannot be read is
    measured anew, and so is an hour later what did not settle.

    Raises:
        ToolchainError: torch cannot use the GPU, the measurement failed, or `cache_dir` cannot be written.
    """
    path = ceilings_file(cache_dir, gpu)
    cached = load_ceilings(path)
    if cached is not None:
        return cached
    with exclusive_timing(gpu=gpu.uuid):
        start = time.monotonic()
        foreign = sample(gpu.uuid).foreign
        report = _run(gpu, cache_dir / "triton")
        beside = {"seconds": f"{time.monotonic() - start:.2f}", "foreign_processes": _count(foreign)}
    ceilings = to_ceilings(report, gpu, beside)
    save_ceilings(path, ceilings)
    return ceilings


def ceilings_file(cache_dir: Path, gpu: GpuFacts) -> Path:
    """Where a GPU's ceilings lie, by what they depend on: UUID, driver, slice under MIG, libraries and our probes."""
    parts = [str(gpu.driver_version), str(gpu.sm_count), str(_VERSION), _CHILD.read_text(encoding="utf-8")]
    for name in ("torch", "triton"):
        try:
            parts.append(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            parts.append("none")
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_dir / f"gpu-ceilings-{gpu.uuid}-{key}.json"


def to_ceilings(report: Report, gpu: GpuFacts, beside: Mapping[str, str]) -> Ceilings:
    """Ceilings from what the child measured; arithmetic that no probe measured has no entry.

    Args:
        report: the child's.
        gpu: the GPU it was measured on.
        beside: more for the provenance.

    Raises:
        ToolchainError: the child could not begin, or measured no bandwidth.
    """
    if report.fault is not None:
        raise ToolchainError(
            f"the ceilings of GPU {gpu.index} ({gpu.name}) cannot be measured: {report.fault}; install a torch build "
            f"for CUDA that fits driver {gpu.driver_version or 'in use'}"
        )
    rates = {m.probe: m.rate for m in report.measured if m.rate is not None}
    copy, reads = rates.get("copy"), [rates[name] for name in _READS if name in rates]
    missing = "; ".join(f"{m.probe}: {m.missing}" for m in report.measured if m.missing is not None)
    if copy is None or not reads:
        raise ToolchainError(
            f"the bandwidth of GPU {gpu.index} ({gpu.name}) cannot be measured: {missing or 'no probe'}"
        )
    flops = {
        dtype: max(rates[probe] for probe in probes if probe in rates)
        for dtype, probes in _PROBES.items()
        if any(probe in rates for probe in probes)
    }
    unsettled = [m.probe for m in report.measured if m.spread > _SETTLED]
    if beside.get("foreign_processes", "0") not in ("0", "unknown"):
        unsettled.append("all of it: other processes were using the GPU")
    return Ceilings(
        copy_bytes=copy,
        read_bytes=max(reads),
        cache_bytes=rates.get("read_l2"),
        flops=flops,
        theoretical_flops={dtype: theoretical_flops(gpu, dtype, rate) for dtype, rate in flops.items()},
        theoretical_bytes=theoretical_bytes(gpu, max(copy, *reads)),
        provenance={
            "device": gpu.uuid,
            "device_name": gpu.name,
            "arch": gpu.arch,
            "driver": gpu.driver_version or "unknown",
            **report.versions,
            "method": "best of repeats; copy: read + written bytes counted; FMA counted as two, the fastest pipe; "
            "theoretical: SMs x highest clock x lanes, memory clock x bus width, "
            f"{MARGIN:g} x measured where these are unknown or too low",
            **{m.probe: f"{m.rate:.6g}" for m in report.measured if m.rate is not None},
            "sizes": ", ".join(f"{m.probe} {m.note}" for m in report.measured if m.note),
            "unsettled": ", ".join(unsettled),
            "missing": missing,
            "date": now(),
            **beside,
        },
    )


def settle(repeat: Callable[[], float], limit_s: float) -> tuple[float, float]:
    """The best of several rates, and how far the second best is from it (0-1).

    At least five repeats; then on until the two best agree within 2%, or `limit_s` has passed.
    """
    start, rates = time.monotonic(), list[float]()
    while True:
        rates.append(repeat())
        best, second = heapq.nlargest(2, [*rates, 0.0])
        spread = 1.0 - second / best
        if len(rates) >= _REPEATS and (spread <= _AGREE or time.monotonic() - start > limit_s):
            return best, spread


def theoretical_flops(gpu: GpuFacts, dtype: str, measured: float) -> float:
    """What the GPU's `dtype` pipes could do at its highest clock, per second; never below `measured`."""
    lanes = LANES.get(gpu.arch, {}).get(dtype)
    if lanes is None or gpu.sm_count is None or gpu.max_sm_clock_hz is None:
        return MARGIN * measured
    peak = 2.0 * lanes * gpu.sm_count * gpu.max_sm_clock_hz
    return peak if peak >= measured else MARGIN * measured


def theoretical_bytes(gpu: GpuFacts, measured: float) -> float:
    """What the memory's pins carry, bytes per second (two transfers per cycle); never below `measured`."""
    if gpu.memory_clock_hz is None or gpu.memory_bus_bits is None:
        return MARGIN * measured
    peak = 2.0 * gpu.memory_clock_hz * gpu.memory_bus_bits / 8
    return peak if peak >= measured else MARGIN * measured


def _run(gpu: GpuFacts, triton_cache: Path) -> Report:
    env = {
        "CUDA_VISIBLE_DEVICES": gpu.uuid,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PATH": search_path(),  # Triton compiles its launcher with the host's compiler
        "PYTHONPATH": str(_ROOT),
        "TRITON_CACHE_DIR": str(triton_cache),
    }
    done = run_process([sys.executable, "-c", _SERVE], timeout_s=_LIMIT_S, env=env)
    try:
        return Report.model_validate_json(done.stdout.strip().rpartition("\n")[2])
    except ValidationError:
        said = (done.stderr.strip().splitlines() or ["no output"])[-1]
        how = f"took longer than {_LIMIT_S:.0f} s" if done.timed_out else f"ended with exit code {done.returncode}"
        raise ToolchainError(
            f"measuring the ceilings of GPU {gpu.index} ({gpu.name}) {how}: {said}; check torch and the driver with "
            "`python -c 'import torch; torch.ones(1).cuda()'`"
        ) from None


def _count(processes: tuple[int, ...] | None) -> str:
    return "unknown" if processes is None else str(len(processes))
