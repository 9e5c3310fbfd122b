"""Measures what one GPU can do. Runs in a child process only: nothing else of the controller's imports torch or Triton.

Every probe checks its result against what must come out, so that no rate is one of work that was skipped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profiling.gpu_ceilings import Measured, Report, settle

_REPEAT_S = 5e-3
_LIMIT_S = 0.25
_WARM_UP_S = 0.05  # an idle GPU needs some milliseconds to raise its clocks
_BUFFER_BYTES = 1 << 30
_BLOCK = 4096  # elements that one program of 256 threads has in hand: 16 independent chains per thread
_WARPS = 8
_UNROLL = 16
_STEPS = 1024  # additions of 1 that even float16 counts exactly
_LARGEST_PRODUCT = 8192
_CHECKED_ROWS = 16
_LARGEST_ERROR = 0.05  # fp8 with fast accumulation and bfloat16 results errs about 1%; skipped work errs by far more

# Compute capability from which a product of this type runs on tensor pipes (tuning guides and PTX ISA, `mma`).
_TENSOR_SINCE = {
    "float16": (7, 0),
    "int8": (7, 5),
    "bfloat16": (8, 0),
    "tf32": (8, 0),
    "float64": (8, 0),
    "float8": (8, 9),
}


class WrongResultError(RuntimeError):
    """A probe did not compute what it was timed for."""


def _fma(
    sums: tl.tensor,
    operands: tl.tensor,
    rounds: tl.int32,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
    DTYPE: tl.constexpr,
) -> None:
    # The operands come from memory, so that the compiler cannot know that x * 1 + 1 only counts.
    x = (tl.arange(0, BLOCK) % 8).to(DTYPE)
    factor = tl.full([BLOCK], 1, DTYPE) * tl.load(operands).to(DTYPE)
    addend = tl.full([BLOCK], 1, DTYPE) * tl.load(operands + 1).to(DTYPE)
    for _ in range(rounds):
        for _ in tl.static_range(UNROLL):
            x = tl.fma(x, factor, addend)
    tl.store(sums + tl.program_id(0), tl.sum(x.to(tl.float32)))


def _read(source: tl.tensor, sums: tl.tensor, tiles: tl.int32, visits: tl.int32, BLOCK: tl.constexpr) -> None:
    # `.cg` passes the first-level cache by: a small source is served by L2 on every visit.
    total = tl.zeros([BLOCK], tl.float32)
    for visit in range(tl.program_id(0), visits, tl.num_programs(0)):
        tile = (visit % tiles).to(tl.int64)
        total += tl.load(source + tile * BLOCK + tl.arange(0, BLOCK), cache_modifier=".cg")
    tl.store(sums + tl.program_id(0), tl.sum(total))


fma_kernel = triton.jit(_fma)
read_kernel = triton.jit(_read, do_not_specialize=["tiles", "visits"])


def fma(dtype: str, programs: int, device: str, block: int = _BLOCK) -> tuple[Callable[[], None], Callable[[], None]]:
    """`programs` blocks of independent chains of `_STEPS` multiply-adds each: the launch, and the check of its result.

    Each step adds 1, so every element ends at its start (0 to 7) plus the number of steps that were really done.
    """
    sums = torch.zeros(programs, dtype=torch.float32, device=device)
    operands = torch.ones(2, dtype=torch.float32, device=device)
    kind = {"float32": tl.float32, "float64": tl.float64, "float16": tl.float16}[dtype]

    def launch() -> None:
        fma_kernel[(programs,)](
            sums, operands, _STEPS // _UNROLL, BLOCK=block, UNROLL=_UNROLL, DTYPE=kind, num_warps=_WARPS
        )

    def check() -> None:
        expected = block * (_STEPS + 3.5)
        _require(
            bool((sums == expected).all()), f"chains of {_STEPS} {dtype} multiply-adds did not end where they must"
        )

    return launch, check


def read(
    source: torch.Tensor, visits: int, programs: int, block: int = _BLOCK
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Reads of `visits` tiles of a source of ones, over and over: the launch, and the check of its result."""
    sums = torch.zeros(programs, dtype=torch.float32, device=source.device)

    def launch() -> None:
        read_kernel[(programs,)](source, sums, source.numel() // block, visits, BLOCK=block, num_warps=_WARPS)

    def check() -> None:
        _require(
            float(sums.double().sum()) == float(visits) * block, "the sum of ones that were read is not their number"
        )

    return launch, check


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of random operands, which draw the power that real ones draw."""

    left: torch.Tensor
    right: torch.Tensor
    run: Callable[[], torch.Tensor]

    def check(self) -> None:
        """Compare some rows with a float64 product."""
        rows = self.left[:_CHECKED_ROWS].to(torch.float64)
        exact = rows @ self.right.to(torch.float64)
        error = torch.linalg.norm(self.run()[:_CHECKED_ROWS].to(torch.float64) - exact) / torch.linalg.norm(exact)
        _require(float(error) <= _LARGEST_ERROR, f"a matrix product has a relative error of {float(error):.2g}")


def product(dtype: str, n: int, device: str) -> Product:
    """An n x n x n product of `dtype` operands (`tf32`: float32 operands on the tensor pipes)."""
    if dtype == "int8":
        left, right = (torch.randint(-128, 128, (n, n), dtype=torch.int8, device=device) for _ in range(2))
        return Product(left, right.t(), lambda: torch._int_mm(left, right.t()))
    if dtype == "float8":
        left, right = (torch.randn(n, n, device=device).to(torch.float8_e4m3fn) for _ in range(2))
        one = torch.ones((), device=device)

        def scaled() -> torch.Tensor:
            return torch._scaled_mm(
                left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )

        return Product(left, right.t(), scaled)
    if dtype == "tf32":
        torch.set_float32_matmul_precision("high")
    kind = {"tf32": torch.float32}.get(dtype) or getattr(torch, dtype)
    left, right = (torch.randn(n, n, dtype=kind, device=device) for _ in range(2))
    out = torch.empty(n, n, dtype=kind, device=device)
    return Product(left, right, lambda: torch.mm(left, right, out=out))


def main() -> None:
    """Print one `Report`."""
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = f"is built for CUDA {built}, which does not start on this GPU" if built else "is built without CUDA"
        print(Report(fault=f"torch {torch.__version__} {why}").model_dump_json())
        return
    measured = []
    for name, probe in _probes():
        try:
            measured.append(probe(name))
        except Exception as error:  # whatever ails one probe, the others are worth having
            reason = (str(error).strip().splitlines() or [""])[0]
            measured.append(Measured(probe=name, missing=f"{type(error).__name__}: {reason}"))
        torch.cuda.empty_cache()
    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": str(torch.version.cuda)}
    print(Report(measured=tuple(measured), versions=versions).model_dump_json())


Probe = Callable[[str], Measured]


def _probes() -> Iterator[tuple[str, Probe]]:
    """Bandwidth first, then arithmetic, the hottest last."""
    capability = torch.cuda.get_device_capability()
    yield "copy", _copy
    yield "read_triton", _read_memory
    yield "read_torch", _read_by_torch
    yield "read_l2", _read_l2
    for dtype in ("float32", "float64", "float16"):
        yield f"fma_{dtype}", _fma_peak
    for dtype, since in _TENSOR_SINCE.items():
        if capability >= since:
            yield f"product_{dtype}", _product_peak


def _copy(name: str) -> Measured:
    source, target = _ones(_buffer_elements()), _ones(_buffer_elements()).zero_()
    end = time.monotonic() + _WARM_UP_S
    while time.monotonic() < end:
        target.copy_(source)
        torch.cuda.synchronize()
    found = _rate(name, lambda: target.copy_(source), 2 * source.nbytes, f"{source.nbytes} bytes")
    _require(bool((target == source).all()), "a copy differs from its source")
    return found


def _read_memory(name: str) -> Measured:
    source = _ones(_buffer_elements())
    launch, check = read(source, source.numel() // _BLOCK, _programs())
    return _checked(_rate(name, launch, source.nbytes, f"{source.nbytes} bytes"), check)


def _read_by_torch(name: str) -> Measured:
    source, total = _ones(_buffer_elements()), torch.zeros((), device="cuda")
    found = _rate(name, lambda: torch.sum(source, 0, out=total), source.nbytes, f"{source.nbytes} bytes")
    _require(abs(float(total) / source.numel() - 1) < 1e-5, "the sum of ones is not their number")
    return found


def _read_l2(name: str) -> Measured:
    # A quarter: the two halves of a large L2 each keep a copy of what the other one is home to.
    tiles = torch.cuda.get_device_properties().L2_cache_size // 4 // (4 * _BLOCK)
    _require(tiles > 0, "torch does not tell the size of L2")
    source = _ones(tiles * _BLOCK)
    visits = (_BUFFER_BYTES // source.nbytes + 1) * tiles
    launch, check = read(source, visits, _programs())
    return _checked(_rate(name, launch, 4 * visits * _BLOCK, f"{source.nbytes} bytes"), check)


def _fma_peak(name: str) -> Measured:
    programs = 64 * torch.cuda.get_device_properties().multi_processor_count
    launch, check = fma(name.removeprefix("fma_"), programs, "cuda")
    return _checked(_rate(name, launch, 2.0 * _STEPS * _BLOCK * programs, f"{programs} blocks"), check)


def _product_peak(name: str) -> Measured:
    """The better of two sizes: which tiles a library picks, and how full the last wave is, depends on it."""
    dtype = name.removeprefix("product_")
    found = []
    for n in _product_sizes(dtype):
        subject = product(dtype, n, "cuda")
        found.append(_checked(_rate(name, subject.run, 2.0 * n**3, f"{n}^3"), subject.check))
    return max(found, key=lambda measured: measured.rate or 0.0)


def _product_sizes(dtype: str) -> tuple[int, ...]:
    """Large enough to fill the GPU for a millisecond or two, and for five; less where memory does not hold them."""
    trial = product(dtype, 2048, "cuda")
    trial.run()
    per_second = 2048**3 / _seconds(trial.run, 1)
    free = int(torch.cuda.mem_get_info()[0])
    largest = min(_LARGEST_PRODUCT, int(math.sqrt(free / 128)) // 1024 * 1024)

    def side(seconds: float) -> int:
        wanted: float = (per_second * seconds) ** (1 / 3)
        return max(1024, min(largest, math.ceil(wanted / 1024) * 1024))

    return tuple(dict.fromkeys((side(1.5e-3), side(5e-3))))


def _rate(name: str, run: Callable[[], object], work: float, note: str) -> Measured:
    run()
    calls = max(1, min(1000, math.ceil(_REPEAT_S / _seconds(run, 1))))
    best, spread = settle(lambda: calls * work / _seconds(run, calls), _LIMIT_S)
    return Measured(probe=name, rate=best, spread=spread, note=note)


def _seconds(run: Callable[[], object], calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return max(1e-9, float(start.elapsed_time(end)) / 1e3)


def _checked(found: Measured, check: Callable[[], None]) -> Measured:
    check()
    return found


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise WrongResultError(otherwise)


def _programs() -> int:
    return 8 * int(torch.cuda.get_device_properties().multi_processor_count)


def _buffer_elements() -> int:
    """Of a float32 buffer: far larger than any cache, at most an eighth of the free memory, in whole tiles."""
    free = int(torch.cuda.mem_get_info()[0])
    return max(1, min(_BUFFER_BYTES, free // 8) // (4 * _BLOCK)) * _BLOCK


def _ones(elements: int) -> torch.Tensor:
    return torch.ones(elements, dtype=torch.float32, device="cuda")
