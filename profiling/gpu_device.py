"""The machine's NVIDIA GPUs: what they are, which one a run means, and how one fares right now.

Facts and telemetry come from NVML, which needs no CUDA context; what NVML does not tell is asked of the CUDA driver in
a child process (`profiling.gpu_attributes`). What cannot be read is None, never a guess.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pynvml
from pydantic import BaseModel, ConfigDict, ValidationError

from backends.process import run_process
from backends.types import ToolchainError

_ROOT = Path(__file__).resolve().parents[1]
_ASK_DRIVER = "import sys; sys.path[:] = filter(None, sys.path); from profiling.gpu_attributes import main; main()"
_DRIVER_LIMIT_S = 60.0  # without persistence mode, opening eight GPUs takes seconds

_FAULTS: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed here (libnvidia-ml.so.1 is not found): "
    "install it; in a container, start it with `--gpus all`",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded: try `modprobe nvidia`, "
    "and read `dmesg` if that fails",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "NVIDIA's driver library and its kernel module differ in version: "
    "reboot, or reload the module",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open the GPUs: check the rights of /dev/nvidia*",
    pynvml.NVML_ERROR_GPU_IS_LOST: "a GPU fell off the bus: reset it (`nvidia-smi -r`) or reboot",
}
# The second is raised by queries that changed their layout, where the driver is older than they are.
_NO_ANSWER = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, UnicodeDecodeError)
_LOOK = "look for NVRM or Xid lines in `dmesg`"
_NO_GPU = "the NVIDIA driver sees no GPU: check `nvidia-smi -L`; in a container, start it with `--gpus all`"

_REASONS: Mapping[str, int] = {
    "idle": pynvml.nvmlClocksEventReasonGpuIdle,
    "set clocks": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
    "power cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hardware slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "sync boost": pynvml.nvmlClocksEventReasonSyncBoost,
    "thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hardware thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "power brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
}
_DISTURBING = {"hardware slowdown", "thermal", "hardware thermal", "power brake"}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU. None is what neither NVML nor the driver tells.

    Attributes:
        index: as `nvidia-smi` counts, in the order of PCI addresses.
        uuid: `GPU-…`.
        name: such as `NVIDIA H200`.
        arch: `sm_90` …, without feature suffix.
        driver_version: of the kernel module.
        cuda_version: the newest CUDA that the driver speaks, `13.0`.
        memory_bytes: device memory.
        max_sm_clock_hz: never exceeded by the SMs.
        memory_clock_hz: highest memory clock; data moves twice per cycle.
        memory_bus_bits: width of the memory bus.
        power_limit_w: the limit in force.
        sm_count, l2_bytes: of what CUDA sees (of the first slice where MIG is on).
        shared_per_block_bytes: the most shared memory a kernel may opt in to.
        shared_per_sm_bytes, registers_per_sm, threads_per_sm: what blocks on one SM share.
        mig, mps, ecc, persistence: whether each is on.
    """

    index: int
    uuid: str
    name: str
    arch: str
    driver_version: str | None = None
    cuda_version: str | None = None
    memory_bytes: int | None = None
    max_sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    memory_bus_bits: int | None = None
    power_limit_w: float | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    shared_per_block_bytes: int | None = None
    shared_per_sm_bytes: int | None = None
    registers_per_sm: int | None = None
    threads_per_sm: int | None = None
    mig: bool | None = None
    mps: bool | None = None
    ecc: bool | None = None
    persistence: bool | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """How a GPU fares at one moment. None is what could not be read.

    Attributes:
        sm_clock_hz, memory_clock_hz: now.
        temperature_c: of the chip.
        power_w: drawn.
        throttle: why the clock is not at its highest: `power cap`, `thermal`, `hardware thermal`, `power brake`,
            `hardware slowdown`, `set clocks`, `sync boost`, `idle`.
        foreign: process ids, as the driver counts them, of compute processes that this process did not start. In a
            container they may be the host's ids, and then our own workers look foreign: ask while none of them runs.
    """

    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: int | None
    power_w: float | None
    throttle: tuple[str, ...] | None
    foreign: tuple[int, ...] | None

    @property
    def disturbed(self) -> bool | None:
        """Whether heat or the hardware's brake slows it down. A power cap does not count: it is a steady state."""
        return None if self.throttle is None else not _DISTURBING.isdisjoint(self.throttle)


def find_gpu(selector: int | str) -> GpuFacts:
    """The GPU that a task names.

    Args:
        selector: an index among the GPUs that CUDA_VISIBLE_DEVICES lets through, in its order, or all of them in that
            of `nvidia-smi` where it is not set; or a UUID, of which the beginning is enough.

    Raises:
        ToolchainError: there is no driver, no such GPU, or CUDA does not start on it.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpu = choose(selector, entries(), setting)
    answer = _ask_driver(gpu.uuid)
    if answer.fault is not None or not answer.devices:
        raise ToolchainError(f"GPU {gpu.index} ({gpu.name}): {answer.fault or 'CUDA does not see it'}")
    # By place, not by UUID: under MIG the one device that CUDA shows has one of its own.
    return _completed(gpu, answer.devices[0])


def choose(selector: int | str, entries: Sequence[GpuFacts | str], setting: str | None) -> GpuFacts:
    """The GPU that `selector` names among those that CUDA_VISIBLE_DEVICES (`setting`) lets through.

    Args:
        selector: as for `find_gpu`.
        entries: by `nvidia-smi`'s index, the GPU or why it does not answer.
        setting: the variable; None when it is not set. An entry that names no GPU ends the list, as it does in CUDA.

    Raises:
        ToolchainError: there is no such GPU.
    """
    shown = list(visible(entries, setting))
    if isinstance(selector, int):
        found = shown[selector : selector + 1] if selector >= 0 else []
    else:
        found = [gpu for gpu in shown if isinstance(gpu, GpuFacts) and _begins(gpu, selector)]
    if len(found) != 1:
        what = f"is named by {len(found)} GPUs" if found else "is not there"
        here = ", ".join(f"{i}: {_label(gpu)}" for i, gpu in enumerate(shown)) or "none"
        through = "" if setting is None else f" through CUDA_VISIBLE_DEVICES={setting}"
        raise ToolchainError(f"device.gpus: GPU {selector} {what}; visible{through}: {here}")
    if isinstance(found[0], str):
        raise ToolchainError(f"device.gpus: GPU {selector} does not answer: {found[0]}")
    return found[0]


def arch_warning(gpu: GpuFacts, arch: str) -> str | None:
    """What to say where `device.arch` is not the GPU's own; None where it is, or is `auto`."""
    match = re.fullmatch(r"(sm_\d+)[af]?", arch)
    if arch == "auto" or (match and match.group(1) == gpu.arch):
        return None
    return (
        f"device.arch is {arch}, but GPU {gpu.index} ({gpu.name}) is {gpu.arch}: kernels built for another one load "
        "slowly, run slowly or not at all; set `device.arch: auto`"
    )


def sample(uuid: str, *, processes: bool = True) -> GpuSample:
    """How the GPU fares now. Who else works on it takes longest to find out: `foreign` is None without `processes`.

    Raises:
        ToolchainError: the driver does not know it any more.
    """
    gpu = _handle(uuid)
    milliwatts = _number(pynvml.nvmlDeviceGetPowerUsage, gpu)
    mask = _number(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu)
    running = _processes(pynvml.nvmlDeviceGetComputeRunningProcesses, gpu) if processes else None
    return GpuSample(
        sm_clock_hz=_hertz(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_SM),
        memory_clock_hz=_hertz(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_MEM),
        temperature_c=_number(pynvml.nvmlDeviceGetTemperature, gpu, pynvml.NVML_TEMPERATURE_GPU),
        power_w=None if milliwatts is None else milliwatts / 1e3,
        throttle=None if mask is None else tuple(name for name, bit in _REASONS.items() if mask & bit),
        foreign=None if running is None else tuple(pid for pid in running if not _ours(pid)),
    )


def visible(entries: Sequence[GpuFacts | str], setting: str | None) -> Iterator[GpuFacts | str]:
    """Those that CUDA_VISIBLE_DEVICES (`setting`) lets through, in its order; all where it is not set."""
    if setting is None:
        yield from entries
        return
    for token in (part.strip() for part in setting.split(",")):
        if token.isdigit():
            found = list(entries[int(token) : int(token) + 1])
        else:
            found = [gpu for gpu in entries if isinstance(gpu, GpuFacts) and _begins(gpu, token)]
        if len(found) != 1:
            return
        yield found[0]


def _begins(gpu: GpuFacts, selector: str) -> bool:
    return selector.startswith("GPU-") and gpu.uuid.lower().startswith(selector.lower())


def _label(entry: GpuFacts | str) -> str:
    return entry if isinstance(entry, str) else f"{entry.name} ({entry.uuid})"


def entries() -> tuple[GpuFacts | str, ...]:
    """By index, each GPU's facts as NVML has them, or why it does not answer. Raises ToolchainError: no GPU."""
    _start()
    count = _number(pynvml.nvmlDeviceGetCount)
    if not count:
        raise ToolchainError(_NO_GPU)
    return tuple(_entry(index) for index in range(count))


def _entry(index: int) -> GpuFacts | str:
    try:
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid, (major, minor) = pynvml.nvmlDeviceGetUUID(gpu), pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
    except _NO_ANSWER as error:
        return _explain(error)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    limit = _number(pynvml.nvmlDeviceGetEnforcedPowerLimit, gpu)
    cuda = _number(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return GpuFacts(
        index=index,
        uuid=str(uuid),
        name=_text(pynvml.nvmlDeviceGetName, gpu) or "unnamed GPU",
        arch=f"sm_{major}{minor}",
        driver_version=_text(pynvml.nvmlSystemGetDriverVersion),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        memory_bytes=getattr(memory, "total", None) or None,
        max_sm_clock_hz=_hertz(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_SM),
        memory_clock_hz=_hertz(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_MEM),
        memory_bus_bits=_number(pynvml.nvmlDeviceGetMemoryBusWidth, gpu) or None,
        power_limit_w=limit / 1e3 if limit else None,
        mig=_on(_ask(pynvml.nvmlDeviceGetMigMode, gpu)),
        mps=_mps(gpu),
        ecc=_on(_ask(pynvml.nvmlDeviceGetEccMode, gpu)),
        persistence=_on(_ask(pynvml.nvmlDeviceGetPersistenceMode, gpu)),
    )


@functools.cache
def _start() -> None:
    """Open NVML, once for the life of the process. A failure is tried again by the next call."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise ToolchainError(_explain(error)) from None


@functools.cache
def _handle(uuid: str) -> object:
    _start()
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        raise ToolchainError(f"GPU {uuid}: {_explain(error)}") from None


def _explain(error: Exception) -> str:
    return _FAULTS.get(getattr(error, "value", -1), f"NVIDIA's driver library says: {error}; look at `nvidia-smi`")


def _ask(query: Callable[..., object], *arguments: object) -> object:
    """NVML's answer, None where this driver or GPU has none."""
    try:
        return query(*arguments)
    except _NO_ANSWER:
        return None


def _number(query: Callable[..., object], *arguments: object) -> int | None:
    answer = _ask(query, *arguments)
    return answer if isinstance(answer, int) else None


def _text(query: Callable[..., object], *arguments: object) -> str | None:
    answer = _ask(query, *arguments)
    return (answer.strip() or None) if isinstance(answer, str) else None


def _hertz(query: Callable[..., object], gpu: object, clock: int) -> float | None:
    megahertz = _number(query, gpu, clock)
    return megahertz * 1e6 if megahertz else None


def _on(mode: object) -> bool | None:
    """Whether a mode is on; NVML gives some as (current, after the next reset)."""
    current = mode[0] if isinstance(mode, (list, tuple)) and mode else mode
    return bool(current) if isinstance(current, int) else None


def _processes(query: Callable[..., object], gpu: object) -> tuple[int, ...] | None:
    answer = _ask(query, gpu)
    return tuple(process.pid for process in answer) if isinstance(answer, list) else None


def _mps(gpu: object) -> bool | None:
    """Whether processes share the GPU through NVIDIA's multi-process service."""
    running = _processes(pynvml.nvmlDeviceGetComputeRunningProcesses, gpu)
    if running is None:
        return None
    names = (_text(pynvml.nvmlSystemGetProcessName, pid) or "" for pid in running)
    return any(name.endswith("nvidia-cuda-mps-server") for name in names) or bool(
        _processes(pynvml.nvmlDeviceGetMPSComputeRunningProcesses, gpu)
    )


def _ours(pid: int) -> bool:
    """Whether a process is this one or one of those it started."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            # The name, in parentheses, may hold anything; then come state and parent.
            pid = int(
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            )
        except (OSError, ValueError, IndexError):
            return False
    return False


class _DriverDevice(BaseModel):
    """One GPU as `profiling.gpu_attributes` prints it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sm_count: int | None
    l2_bytes: int | None
    shared_per_block_bytes: int | None
    shared_per_sm_bytes: int | None
    registers_per_sm: int | None
    threads_per_sm: int | None


class _DriverAnswer(BaseModel):
    """Its whole answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fault: str | None = None
    devices: tuple[_DriverDevice, ...] = ()


def _ask_driver(visible: str) -> _DriverAnswer:
    """What CUDA knows of the GPUs named in `visible`, or why it does not answer."""
    env = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONPATH": str(_ROOT)}
    done = run_process([sys.executable, "-c", _ASK_DRIVER], timeout_s=_DRIVER_LIMIT_S, env=env)
    if done.timed_out:
        return _DriverAnswer(fault=f"CUDA did not start within {_DRIVER_LIMIT_S:.0f} s; {_LOOK}")
    try:
        return _DriverAnswer.model_validate_json(done.stdout)
    except ValidationError:
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return _DriverAnswer(fault=f"the CUDA driver could not be asked ({said}); {_LOOK}")


def _completed(gpu: GpuFacts, device: _DriverDevice) -> GpuFacts:
    return replace(
        gpu,
        sm_count=device.sm_count,
        l2_bytes=device.l2_bytes,
        shared_per_block_bytes=device.shared_per_block_bytes,
        shared_per_sm_bytes=device.shared_per_sm_bytes,
        registers_per_sm=device.registers_per_sm,
        threads_per_sm=device.threads_per_sm,
    )
