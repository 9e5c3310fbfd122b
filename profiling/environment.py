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

_DISTRIBUTION = "roofclimb"
_PROBED_TOOLS = ("objdump", "perf", "valgrind")
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
class Environment:
    """The machine a run was made on.

    Attributes:
        device: the CPU.
        versions: name to version line of python, this program, the kernel and the tools; None is not installed.
        counters: the counter source in force: `perf`, `cachegrind` or `counted`.
        counters_reason: why no better source is used; empty for the best.
        can_read_counters: whether hardware counters were really read.
        layers: sandbox layers by name: whether the harness has each in force. Empty when it was not asked.
        shortfalls: what is missing, with remedies.
    """

    device: DeviceFacts
    versions: Mapping[str, str | None]
    counters: str
    counters_reason: str
    can_read_counters: bool
    layers: Mapping[str, bool]
    shortfalls: tuple[Shortfall, ...]


def inspect_environment(tools: Mapping[str, str], counters: CounterSource, layers: Mapping[str, bool]) -> Environment:
    """Look at the machine.

    Args:
        tools: name to version line of what the backend builds with.
        counters: what `profiling.counters.counter_source` found by reading.
        layers: sandbox layers that the harness reported.
    """
    device = cpu_facts()
    versions: dict[str, str | None] = {
        "python": platform.python_version(),
        _DISTRIBUTION: _own_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        **tools,
    }
    for name in _PROBED_TOOLS:
        if versions.get(name) is None:
            versions[name] = _version(name)
    return Environment(
        device=device,
        versions=versions,
        counters=counters.name,
        counters_reason=counters.reason,
        can_read_counters=counters.name == "perf",
        layers=dict(layers),
        shortfalls=(
            *_device_shortfalls(device),
            *_counter_shortfalls(counters, versions, device),
            *_tool_shortfalls(versions),
            *_layer_shortfalls(layers),
        ),
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


def _own_version() -> str | None:
    try:
        return importlib.metadata.version(_DISTRIBUTION)
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


def _device_shortfalls(device: DeviceFacts) -> list[Shortfall]:
    found = []
    lacking = [name for name in ("avx2", "fma") if name not in device.features]
    if device.arch == "x86_64" and lacking:
        what = f"the CPU has no {' and no '.join(lacking)}, which the recorded demos need"
        found.append(Shortfall(what, "run them on an x86-64 machine from 2015 or later, or record answers anew"))
    if device.usable_cores < 2:
        what = "one usable core: the controller disturbs what it measures"
        found.append(Shortfall(what, "allow the process at least two cores"))
    return found


def _counter_shortfalls(
    counters: CounterSource, versions: Mapping[str, str | None], device: DeviceFacts
) -> list[Shortfall]:
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
    remedy = "run where the kernel allows them (as root, or with user namespaces); `--require-sandbox` refuses to go on"
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
