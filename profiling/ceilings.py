"""What this machine's cores can do, measured once by a small native program and cached with its provenance.

Every rate is the best of several repeats: other tenants of the machine, interrupts and clock changes can only slow a
repeat down, so the best one is nearest to what the hardware does. (Kernels are reported by their median instead.)
Repeats go on until the two best agree within 2%. Where they never did, the machine was busy: the provenance names the
rates under `unsettled`, and they are measured again once they are an hour old.

The *theoretical* rates exist only to tell an impossible time from a fast one. A virtual machine hides its clock and its
real caches, so they are not computed from a data sheet: they are `MARGIN` times the best rate measured at any vector
width (flops) or at any level of the memory hierarchy, the first-level cache included (bytes), taking one core's rate
times the number of cores where that is higher. An honest kernel that finds all of its data in cache stays below them.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from backends.host_compiler import find_compiler, search_path
from backends.process import run_process
from backends.types import ToolchainError
from profiling.ceilings_cache import load_ceilings, now, save_ceilings
from profiling.device import DeviceFacts, cpu_facts, pinned_cores
from profiling.exclusive import exclusive_timing
from profiling.findings import Ceilings

MARGIN = 2.0
_VERSION = 3
_SOURCE = Path(__file__).parent / "native" / "ceilings.cpp"
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-pthread")
_COPIES = ("copy_library", "copy_plain", "copy_streaming")
_WIDTHS = (128, 256, 512)

_SETTLED = 0.05

Rates = Mapping[tuple[str, str], float]


def measure_ceilings(cache_dir: Path, threads: int) -> Ceilings:
    """Ceilings of `threads` pinned cores: from `cache_dir` if this machine was measured before, else measured now.

    A measurement takes a few seconds, compilation included; a second call takes none. A cached file that cannot
    be read is measured anew, and so is an unsettled one after an hour.

    Raises:
        ToolchainError: there is no working C++ compiler, too few cores, the program failed, or `cache_dir` cannot be
            written.
    """
    facts = cpu_facts()
    path = cache_dir / f"ceilings-{facts.id}-t{threads}-{_version()}.json"
    cached = load_ceilings(path)
    if cached is not None:
        return cached
    with exclusive_timing():
        ceilings = _measure(facts, threads)
    save_ceilings(path, ceilings)
    return ceilings


def peak_flops(ceilings: Ceilings, dtype: str, *, theoretical: bool = False) -> float | None:
    """Operations per second at `dtype`'s arithmetic, None where it was not measured."""
    return (ceilings.theoretical_flops if theoretical else ceilings.flops).get(dtype)


def peak_bytes(ceilings: Ceilings, *, theoretical: bool = False) -> float:
    """Memory bandwidth, bytes per second: the better of copying and reading.

    `work.bytes` does not say how much of it is written, so a kernel is held to the higher of the two. Calling a
    reduction near its peak because it beats a copy would stop a search too early.
    """
    return ceilings.theoretical_bytes if theoretical else max(ceilings.copy_bytes, ceilings.read_bytes)


def _version() -> str:
    return f"v{_VERSION}-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:8]}"


def _measure(facts: DeviceFacts, threads: int) -> Ceilings:
    start = time.monotonic()
    try:
        cores = pinned_cores(threads)
    except ValueError as error:
        raise ToolchainError(f"ceilings cannot be measured: {error}") from error
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="roofclimb-ceilings-") as folder:
        program = str(Path(folder) / "ceilings")
        _run("compiling the ceilings program", [*compiler.argv, *_FLAGS, str(_SOURCE), "-o", program], timeout_s=60)
        sizes = (_buffer_bytes(facts), facts.l1d_bytes or 32 << 10, facts.l2_bytes or 256 << 10)
        rates, unsettled = _rates(program, sizes, cores)
        every = pinned_cores(len(os.sched_getaffinity(0)))
        if len(every) > len(cores):
            # Not what this task may use, but what the machine could give: people want to see both.
            whole, doubtful = _rates(program, sizes, every)
            rates |= {(name, "every"): rate for (name, scope), rate in whole.items() if scope == "all"}
            unsettled += tuple(u.replace("(all)", "(every core)") for u in doubtful if "(all)" in u)
    return _ceilings(
        rates,
        threads,
        {
            "device": facts.id,
            "device_name": facts.name,
            "cores": ",".join(str(core) for core in cores),
            "compiler": compiler.version,
            "flags": " ".join(_FLAGS),
            "buffer_bytes": str(sizes[0]),
            "method": "best of repeats; copy: library, plain and streaming stores, read + written bytes counted; "
            "FMA counted as two, fastest of 128, 256 and 512 bits where the CPU has them; "
            f"theoretical: {MARGIN:g} x the best of any width or cache level",
            "unsettled": ", ".join(unsettled),
            "date": now(),
            "seconds": f"{time.monotonic() - start:.2f}",
        },
    )


def _rates(
    program: str, sizes: tuple[int, ...], cores: tuple[int, ...]
) -> tuple[dict[tuple[str, str], float], tuple[str, ...]]:
    """Rates of one core and of all of `cores` at once."""
    return parse_rates(_run("measuring ceilings", [program, *(str(n) for n in (*sizes, *cores))], timeout_s=60))


def parse_rates(text: str) -> tuple[dict[tuple[str, str], float], tuple[str, ...]]:
    """Parse the native program's lines, `name one|all rate spread`: rates per second, and which did not settle.

    Raises:
        ToolchainError: a line that is none.
    """
    rates: dict[tuple[str, str], float] = {}
    unsettled: list[str] = []
    for line in text.splitlines():
        try:
            name, cores, rate, spread = line.split()
            rates[name, cores] = float(rate)
            if float(spread) > _SETTLED:
                unsettled.append(f"{name} ({cores})")
        except ValueError as error:
            raise ToolchainError(f"the ceilings program printed a line that is no measurement: {line!r}") from error
    return rates, tuple(unsettled)


def _ceilings(rates: Rates, threads: int, provenance: Mapping[str, str]) -> Ceilings:
    scope = "all" if threads > 1 else "one"

    def best(names: tuple[str, ...], cores: str) -> float:
        found = [rates[name, cores] for name in names if (name, cores) in rates]
        if not found or max(found) <= 0:
            raise ToolchainError(f"the ceilings program did not measure any of {', '.join(names)}")
        return max(found)

    def widths(dtype: str) -> tuple[str, ...]:
        return tuple(f"{dtype}_{width}" for width in _WIDTHS)

    def theoretical(names: tuple[str, ...]) -> float:
        return MARGIN * max(best(names, scope), threads * best(names, "one"))

    flops = {dtype: best(widths(dtype), scope) for dtype in ("float32", "float64")}
    # By width too: a kernel built for AVX2 is held to the best of all widths, and people want to see what that costs.
    by_name = {f"{name}_{_unit(name)}": f"{rate:.6g}" for (name, cores), rate in rates.items() if cores == scope}
    whole = "every" if ("read_memory", "every") in rates else scope
    beside = {
        f"{label}_{name}": f"{best(names, cores):.6g}"
        for label, cores in (("one_core", "one"), ("all_cores", whole))
        for name, names in (
            ("copy_bytes", _COPIES),
            ("read_bytes", ("read_memory",)),
            *((f"{dtype}_flops", widths(dtype)) for dtype in flops),
        )
    }
    return Ceilings(
        copy_bytes=best(_COPIES, scope),
        read_bytes=best(("read_memory",), scope),
        cache_bytes=rates.get(("read_l2", scope)),
        flops=flops,
        theoretical_flops={dtype: theoretical(widths(dtype)) for dtype in flops},
        theoretical_bytes=theoretical((*_COPIES, "read_memory", "read_l1", "read_l2")),
        provenance={**provenance, **beside, **by_name},
    )


def _unit(name: str) -> str:
    return "flops" if name.startswith("float") else "bytes"


def _buffer_bytes(facts: DeviceFacts) -> int:
    """Two buffers of this size: four times the last-level cache, at most 512 MiB and an eighth of the memory."""
    last_level = facts.l3_bytes or facts.l2_bytes or 32 << 20
    size = min(max(4 * last_level, 64 << 20), 512 << 20, (facts.memory_bytes or 4 << 30) // 8)
    return size // 4096 * 4096


def _run(what: str, argv: list[str], timeout_s: float) -> str:
    try:
        done = run_process(argv, timeout_s=timeout_s, env={"PATH": search_path()})
    except OSError as error:
        raise ToolchainError(f"{what}: {argv[0]} cannot be started ({error})") from error
    if done.timed_out:
        raise ToolchainError(f"{what}: {argv[0]} took longer than {timeout_s:g} s")
    if done.returncode != 0:
        log = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise ToolchainError(f"{what}: {argv[0]} failed with exit code {done.returncode}: {log[-1]}")
    return done.stdout
