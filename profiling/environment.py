"""What this machine offers to a run, what is missing, and what to do about it (`env.json`, `env.md`)."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass

from backends.host_compiler import find_tool, version_line
from backends.types import ToolchainError
from profiling.counters import CounterSource
from profiling.device import DeviceFacts, cpu_facts
from profiling.gpu_device import GpuFacts, GpuSample
from profiling.gpu_tools import GPU_TOOLS, tool_version

_DISTRIBUTION = "roofclimb"
_PROBED_TOOLS = ("objdump", "perf", "valgrind")
_LIBRARIES = ("torch", "triton")
_STATE = {True: "on", False: "off", None: "unknown"}
_INSTALL = {
    "objdump": "install binutils (Debian, Ubuntu: apt install binutils)",
    "perf": "install perf (Debian: apt install linux-perf; Ubuntu: linux-tools-generic)",
    "valgrind": "install valgrind (Debian, Ubuntu: apt install valgrind)",
}


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Something this machine lacks: what, what it costs a run, and what to do."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class NcuCounters:
    """Whether Nsight Compute really read a counter of the GPU: `fault` is None if it did, else says why not."""

    fault: Shortfall | None


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine a run was made on.

    Attributes:
        device: the CPU.
        versions: name to version line of python, this program, the kernel and the tools; None is not installed.
        counters: the counter source in force: `perf`, `cachegrind` or `counted`; on a GPU `ncu` or `none`.
        counters_reason: why no better source is used; empty for the best.
        can_read_counters: whether hardware counters of the device that kernels run on were really read.
        layers: sandbox layers by name: whether the harness has each in force. Empty when it was not asked.
        shortfalls: what is missing, with remedies.
        gpu: the GPU that kernels run on, None where they run on the CPU.
        gpu_now: how it fared, None if it was not asked.
    """

    device: DeviceFacts
    versions: Mapping[str, str | None]
    counters: str
    counters_reason: str
    can_read_counters: bool
    layers: Mapping[str, bool]
    shortfalls: tuple[Shortfall, ...]
    gpu: GpuFacts | None = None
    gpu_now: GpuSample | None = None


def inspect_environment(
    tools: Mapping[str, str],
    counters: CounterSource | NcuCounters,
    layers: Mapping[str, bool],
    gpu: GpuFacts | None = None,
    gpu_now: GpuSample | None = None,
) -> Environment:
    """Look at the machine.

    Args:
        tools: name to version line of what the backend builds with.
        counters: what `profiling.counters.counter_source` found by reading, or Nsight Compute on a GPU.
        layers: sandbox layers that the harness reported.
        gpu: the GPU that kernels run on, None where they run on the CPU.
        gpu_now: a sample of it taken while nothing of ours ran there.
    """
    device = cpu_facts()
    versions: dict[str, str | None] = {
        "python": platform.python_version(),
        _DISTRIBUTION: _installed(_DISTRIBUTION),
        "kernel": f"{platform.system()} {platform.release()}",
        **tools,
    }
    if gpu is None:
        versions |= {name: versions.get(name) or _version(name) for name in _PROBED_TOOLS}
    else:
        versions |= {name: versions.get(name) or tool_version(name) for name in GPU_TOOLS}
        versions |= {name: _installed(name) for name in _LIBRARIES}
    name, reason = _source(counters)
    return Environment(
        device=device,
        versions=versions,
        counters=name,
        counters_reason=reason,
        can_read_counters=name in ("perf", "ncu"),
        layers=dict(layers),
        shortfalls=(
            *_device_shortfalls(device, demos=gpu is None),
            *(_gpu_shortfalls(gpu, gpu_now) if gpu is not None else ()),
            *_counter_shortfalls(counters, versions, device),
            *(_tool_shortfalls(versions) if gpu is None else _gpu_tool_shortfalls(versions)),
            *_layer_shortfalls(layers),
        ),
        gpu=gpu,
        gpu_now=gpu_now,
    )


def to_markdown(env: Environment) -> str:
    """`env.md`: one page for people."""
    device = env.device
    rows = {
        "CPU": f"{device.name} ({device.arch}), id `{device.id}`",
        "cores": f"{_or_unknown(device.physical_cores)} physical, {device.usable_cores} usable",
        "caches": ", ".join(
            f"{name} {_size(size)}"
            for name, size in (("L1d", device.l1d_bytes), ("L2", device.l2_bytes), ("L3", device.l3_bytes))
        ),
        "memory": _size(device.memory_bytes),
        "features": ", ".join(device.features) or "unknown",
        "virtual machine": {True: "yes", False: "no", None: "unknown"}[device.virtualised],
    }
    if env.gpu is not None:
        rows |= _gpu_rows(env.gpu, env.gpu_now)
    lines = ["# Environment", "", "| device | |", "|---|---|", *(f"| {k} | {_cell(v)} |" for k, v in rows.items())]
    lines += ["", "| software | version |", "|---|---|"]
    lines += [f"| {name} | {_cell(version or 'not installed')} |" for name, version in env.versions.items()]
    why = f" ({env.counters_reason})" if env.counters_reason else ""
    lines += ["", f"Counters: **{env.counters}**{why}.", ""]
    if env.layers:
        lines += ["| sandbox layer | in force |", "|---|---|"]
        lines += [f"| {_cell(name)} | {'yes' if on else 'no'} |" for name, on in env.layers.items()]
        lines += [""]
    if env.shortfalls:
        lines += ["What is missing:", "", *(f"- {s.what}: {s.remedy}." for s in env.shortfalls)]
    else:
        lines += ["Nothing is missing."]
    return "\n".join(lines) + "\n"


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _version(name: str) -> str | None:
    program = find_tool(name)
    if program is None:
        return None
    try:
        return version_line((str(program),))
    except ToolchainError:
        return None


def _gpu_rows(gpu: GpuFacts, now: GpuSample | None) -> dict[str, str]:
    clock = "unknown" if gpu.max_sm_clock_hz is None else f"{gpu.max_sm_clock_hz / 1e6:.0f} MHz"
    limit = "unknown" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f} W"
    rows = {
        "GPU": f"{gpu.index}: {gpu.name} ({gpu.arch}), `{gpu.uuid}`",
        "GPU driver": f"{gpu.driver_version or 'unknown'}, for CUDA up to {gpu.cuda_version or 'unknown'}",
        "SMs": f"{_or_unknown(gpu.sm_count)}, up to {clock}",
        "GPU memory": f"{_size(gpu.memory_bytes)}, L2 {_size(gpu.l2_bytes)}",
        "shared memory": f"{_size(gpu.shared_per_block_bytes)} per block, {_size(gpu.shared_per_sm_bytes)} per SM",
        "power limit": limit,
        "GPU modes": ", ".join(
            f"{name} {_STATE[on]}"
            for name, on in (("MIG", gpu.mig), ("MPS", gpu.mps), ("ECC", gpu.ecc), ("persistence", gpu.persistence))
        ),
    }
    if now is not None:
        parts = [
            None if now.sm_clock_hz is None else f"{now.sm_clock_hz / 1e6:.0f} MHz",
            None if now.temperature_c is None else f"{now.temperature_c} °C",
            None if now.power_w is None else f"{now.power_w:.0f} W",
            None if not now.throttle else f"held back by: {', '.join(now.throttle)}",
        ]
        rows["GPU at the start"] = ", ".join(filter(None, parts)) or "unknown"
    return rows


def _source(counters: CounterSource | NcuCounters) -> tuple[str, str]:
    if isinstance(counters, CounterSource):
        return counters.name, counters.reason
    return ("ncu", "") if counters.fault is None else ("none", counters.fault.what)


def _gpu_shortfalls(gpu: GpuFacts, now: GpuSample | None) -> list[Shortfall]:
    found = []
    if gpu.mig:
        what = "MIG is on: kernels run on the first slice, while clock and power are the whole GPU's"
        found.append(Shortfall(what, f"turn it off with `nvidia-smi -i {gpu.index} -mig 0`, or use another GPU"))
    if gpu.mps:
        what = "MPS is on: other processes' kernels can run beside those that are timed"
        found.append(Shortfall(what, "stop it with `echo quit | nvidia-cuda-mps-control`"))
    if gpu.ecc is False:
        what = "ECC is off: a flipped bit in memory passes for a wrong kernel"
        found.append(Shortfall(what, f"turn it on with `nvidia-smi -i {gpu.index} -e 1`, then reboot"))
    if gpu.persistence is False:
        what = "persistence mode is off: the driver starts anew for each process that comes alone, which takes seconds"
        found.append(Shortfall(what, f"turn it on with `nvidia-smi -i {gpu.index} -pm 1`"))
    if now is not None and now.foreign:
        pids = ", ".join(str(pid) for pid in now.foreign)
        what = f"other processes compute on the GPU (process ids {pids}) and disturb what is timed"
        found.append(Shortfall(what, "end them, or name another GPU in `device.gpus`"))
    if now is not None and now.disturbed:
        what = f"the GPU is slowed down ({', '.join(now.throttle or ())})"
        found.append(
            Shortfall(
                what, "look to its cooling and power supply: what is timed in that state is slower than the kernel"
            )
        )
    return found


def _gpu_tool_shortfalls(versions: Mapping[str, str | None]) -> list[Shortfall]:
    found = []
    if versions.get("cuobjdump") is None:
        what = "no cuobjdump: methods cannot be found in the machine code"
        found.append(Shortfall(what, "install a CUDA toolkit, or `pip install nvidia-cuda-cuobjdump`"))
    if versions.get("compute-sanitizer") is None:
        what = "no compute-sanitizer: champions are accepted without it; races and bad accesses show by results alone"
        found.append(Shortfall(what, "install a CUDA toolkit (Debian, Ubuntu: apt install cuda-sanitizer-13-0)"))
    return found


def _device_shortfalls(device: DeviceFacts, *, demos: bool) -> list[Shortfall]:
    found = []
    lacking = [name for name in ("avx2", "fma") if name not in device.features]
    if demos and device.arch == "x86_64" and lacking:
        what = f"the CPU has no {' and no '.join(lacking)}, which the recorded demos need"
        found.append(Shortfall(what, "run them on an x86-64 machine from 2015 or later, or record answers anew"))
    if device.usable_cores < 2:
        what = "one usable core: the controller disturbs what it measures"
        found.append(Shortfall(what, "allow the process at least two cores"))
    return found


def _counter_shortfalls(
    counters: CounterSource | NcuCounters, versions: Mapping[str, str | None], device: DeviceFacts
) -> list[Shortfall]:
    if isinstance(counters, NcuCounters):
        fault = counters.fault
        cost = "profiles are degraded: time and launch alone are known"
        return [] if fault is None else [Shortfall(f"no GPU counters ({cost}): {fault.what}", fault.remedy)]
    if counters.name == "perf":
        return []
    cost = "cache and branch behaviour is simulated" if counters.name == "cachegrind" else "only counted work is known"
    if versions.get("perf") is None:
        remedy = _INSTALL["perf"]
    elif "may not read" in counters.reason:
        remedy = "allow it with `sysctl kernel.perf_event_paranoid=2`, the CAP_PERFMON capability, or run as root"
    elif device.virtualised:
        remedy = "have the hypervisor pass its performance counters through, or measure on bare metal"
    else:
        remedy = "check that `perf stat -e instructions:u true` prints a number"
    found = [Shortfall(f"no hardware counters ({cost})", remedy)]
    if counters.name == "counted":
        remedy = _INSTALL["valgrind"] if versions.get("valgrind") is None else "check that `valgrind true` works"
        found.append(Shortfall("no cachegrind to stand in for them", remedy))
    return found


def _tool_shortfalls(versions: Mapping[str, str | None]) -> list[Shortfall]:
    if versions.get("objdump") is None:
        return [Shortfall("no objdump: methods cannot be found in the machine code", _INSTALL["objdump"])]
    return []


def _layer_shortfalls(layers: Mapping[str, bool]) -> list[Shortfall]:
    missing = [name for name, on in layers.items() if not on]
    if not missing:
        return []
    how = "as root, or with user namespaces; for build_files, with Landlock"
    remedy = f"run where the kernel allows them ({how}); `--require-sandbox` refuses to go on"
    return [Shortfall(f"sandbox layers not in force: {', '.join(missing)}", remedy)]


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >> shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size} B"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
