"""What a task runs on: the host, and the GPU where its backend needs one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.config import Config
from agent.errors import UnfitEnvironment
from backends.cuda_toolchain import find_cudart
from backends.types import Backend, ToolchainError
from profiling.ceilings import measure_ceilings
from profiling.counters import counter_source
from profiling.device import DeviceFacts, cpu_facts
from profiling.environment import Environment, NcuCounters, Shortfall, inspect_environment
from profiling.findings import Ceilings
from profiling.gpu_ceilings import measure_gpu_ceilings
from profiling.gpu_device import GpuFacts, GpuSample, arch_warning, find_gpu, sample
from profiling.harness.runner_build import probe_command
from profiling.ncu.runner import can_read_counters


@dataclass(frozen=True, slots=True)
class Machine:
    """The host's processor and, for kernels that run there, the GPU.

    `present` is False where the GPU is only known from an earlier session of the run: nothing can be measured then.
    `gpu_then` is how it fared before anything of ours ran on it.
    """

    cpu: DeviceFacts
    gpu: GpuFacts | None
    present: bool = True
    gpu_then: GpuSample | None = None

    @property
    def id(self) -> str:
        """Times may be compared where this is equal."""
        return self.cpu.id if self.gpu is None else self.gpu.uuid

    @property
    def name(self) -> str:
        """What people call the device."""
        return self.cpu.name if self.gpu is None else self.gpu.name

    @property
    def arch(self) -> str:
        """`x86_64`, `sm_90` …"""
        return self.cpu.arch if self.gpu is None else self.gpu.arch

    def ceilings(self, cache: Path, config: Config) -> Ceilings:
        """What the device can do, measured once. Raises ToolchainError."""
        if self.gpu is None:
            return measure_ceilings(cache / "ceilings", config.device.threads)
        return measure_gpu_ceilings(cache / "ceilings", self.gpu)

    def worker_environment(self) -> Mapping[str, str]:
        """What workers must see beside the usual: where the CUDA run-time lies."""
        runtime = None if self.gpu is None else find_cudart()
        return {} if runtime is None else {"ROOFCLIMB_CUDART": str(runtime)}


def find_machine(config: Config, backend: Backend, warn: Callable[[str], None]) -> Machine:
    """The machine that `backend`'s kernels run on here.

    Args:
        config: the first of `device.gpus` is the GPU, `device.arch` what kernels are built for.
        backend: decides whether a GPU is needed.
        warn: told when `device.arch` is not the GPU's.

    Raises:
        ToolchainError: there is no such GPU, or no driver.
        UnfitEnvironment: the CPU lacks an instruction set that kernels are built for.
    """
    cpu = cpu_facts()
    if backend.device == "gpu":
        gpu = find_gpu(config.device.gpus[0] if config.device.gpus else 0)
        warning = arch_warning(gpu, config.device.arch)
        if warning is not None:
            warn(warning)
        return Machine(cpu, gpu, gpu_then=sample(gpu.uuid))
    require_features(backend, cpu)
    return Machine(cpu, None)


def require_features(backend: Backend, cpu: DeviceFacts) -> None:
    """The kernels of a backend can run on this CPU.

    Raises:
        UnfitEnvironment: it lacks an instruction set that they are built for.
    """
    missing = [feature for feature in backend.needs_features if feature not in cpu.features]
    if missing:
        raise UnfitEnvironment(
            f"this CPU ({cpu.name}) lacks {', '.join(missing)}, which {backend.name} kernels are built for; "
            "use a machine that has them"
        )


def here() -> Machine:
    """This machine, its first GPU included where it has one."""
    try:
        gpu = find_gpu(0)
        return Machine(cpu_facts(), gpu, gpu_then=sample(gpu.uuid))
    except ToolchainError:
        return Machine(cpu_facts(), None)


def look_at(machine: Machine, backend: Backend, layers: Mapping[str, bool], cache: Path) -> Environment:
    """What the machine offers; a counter of the device is really read. Raises ToolchainError."""
    if machine.gpu is None:
        return inspect_environment(backend.toolchain(), counter_source(), layers)
    with tempfile.TemporaryDirectory(prefix="roofclimb-probe-") as folder:
        access = can_read_counters(probe_command(cache / "harness", machine.gpu.uuid), Path(folder))
    fault = None if access.readable else Shortfall(access.reason, access.remedy)
    return inspect_environment(backend.toolchain(), NcuCounters(fault), layers, machine.gpu, machine.gpu_then)


def say_warning(text: str) -> None:
    """Tell a person."""
    print(f"roofclimb: warning: {text}", file=sys.stderr)
