"""A GPU that is not there: what Triton is told in the process that describes and compiles Triton kernels.

The driver reports the target; launches are recorded and not made.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.backends.nvidia import driver as nvidia_driver

_CUDA = torch.device("cuda", 0)
_MEASURES = re.compile(r"\b(REG|STACK|LOCAL|SHARED|CONSTANT\[\d+\]):(\d+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
# cuDeviceGetAttribute's numbers.
_ATTRIBUTES = {"major": 75, "minor": 76, "processors": 16, "shared": 97, "l2": 38, "block_shared": 8, "registers": 82}


@dataclass(frozen=True, slots=True)
class Device:
    """What host code may ask about a GPU. Sizes in bytes."""

    name: str
    major: int
    minor: int
    processors: int
    shared: int
    l2: int
    memory: int
    block_shared: int = 48 << 10
    registers: int = 65536

    @classmethod
    def of(cls, capability: int) -> Device:
        """The machine's own first GPU of this compute capability (90 for 9.0), else what is usual for it."""
        found = _present(capability)
        if found is not None:
            return found
        processors, shared, l2 = _USUAL.get(capability) or _USUAL[max(c for c in _USUAL if c <= max(capability, 80))]
        return cls(f"sm_{capability}", *divmod(capability, 10), processors, shared, l2, 80 << 30)


_USUAL = {
    80: (108, 166912, 40 << 20),
    86: (84, 101376, 6 << 20),
    89: (128, 101376, 72 << 20),
    90: (132, 232448, 50 << 20),
    100: (148, 232448, 126 << 20),
    103: (148, 232448, 126 << 20),
    120: (188, 101376, 96 << 20),
}


def _present(capability: int) -> Device | None:
    """Asked of the driver, without a context, by a process of its own: it leaves threads and open devices behind."""
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(say, json.dumps(_ask_driver(capability)).encode())
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(hear) as answer:
        found = answer.read()
    os.waitpid(pid, 0)
    try:
        return Device(**json.loads(found))
    except (ValueError, TypeError):
        return None


def _ask_driver(capability: int) -> dict[str, int | str] | None:
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    for index in range(count.value):
        handle = ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(handle), index)
        values: dict[str, int | str] = {}
        for name, number in _ATTRIBUTES.items():
            value = ctypes.c_int()
            cuda.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
            values[name] = value.value
        if (values["major"], values["minor"]) == divmod(capability, 10):
            label, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
            cuda.cuDeviceGetName(label, 256, handle)
            cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
            return {**values, "name": label.value.decode(), "memory": memory.value}
    return None


@dataclass(frozen=True, slots=True)
class Choice:
    """An autotuner, the key it looked up, and the index of a configuration."""

    tuner: str
    key: str
    config: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch that was not made: the compiled kernel's hash, the grid, and the choice that it serves, if any."""

    hash: str
    grid: tuple[int, int, int]
    choice: Choice | None


@dataclass(slots=True)
class Recorder:
    """What a driver stand-in saw.

    Attributes:
        choice: tells what a launch made now serves.
        launches: in order.
        usage: what each binary takes, by its SHA-256.
        prebuilt: whether the native launchers that this Triton needs could be built.
    """

    choice: Callable[[], Choice | None]
    launches: list[Launch] = field(default_factory=list)
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    prebuilt: bool = True


class KernelMetadata(Protocol):
    """The part of Triton's record of a compiled kernel that is of use here."""

    hash: str


def _launcher(recorder: Recorder) -> type:
    class Launcher:
        """Takes the place of Triton's launcher, whose native part it builds where Triton makes one per kernel."""

        def __init__(self, source: object, metadata: KernelMetadata) -> None:
            self._hash = metadata.hash
            if hasattr(nvidia_driver, "make_launcher"):
                try:
                    nvidia_driver.CudaLauncher(source, metadata)
                except (AssertionError, ImportError, OSError, subprocess.CalledProcessError):
                    recorder.prebuilt = False  # no libcuda here: this machine will not run the kernel either

        def __call__(self, x: int, y: int, z: int, *rest: object) -> None:
            recorder.launches.append(Launch(self._hash, (x, y, z), recorder.choice()))

    return Launcher


class _Utilities:
    """Triton's view of the driver API."""

    def __init__(self, device: Device, recorder: Recorder) -> None:
        self._device = device
        self._recorder = recorder
        # Later versions ask for the most threads a block of the kernel may have, too.
        text = Path(triton.__file__).with_name("compiler").joinpath("compiler.py").read_text(encoding="utf-8")
        self._with_threads = "n_max_threads" in text

    def get_device_properties(self, index: int) -> dict[str, int]:
        return {
            "max_shared_mem": self._device.shared,
            "max_num_regs": self._device.registers,
            "multiprocessor_count": self._device.processors,
            "warpSize": 32,
            "sm_clock_rate": 1500000,
            "mem_clock_rate": 1500000,
            "mem_bus_width": 4096,
        }

    def load_binary(self, name: str, image: bytes, shared: int, index: int) -> tuple[int, ...]:
        measured = self._recorder.usage[hashlib.sha256(image).hexdigest()] = resource_usage(image)
        loaded = (1, 1, measured.get("REG", 0), measured.get("LOCAL", 0) // 4)
        return (*loaded, 1024) if self._with_threads else loaded

    def unload_module(self, module: int) -> None:
        """Nothing was loaded."""


class StandIn:
    """A Triton driver whose device is a description."""

    def __init__(self, device: Device, recorder: Recorder) -> None:
        self._device = device
        self.utils = _Utilities(device, recorder)
        self.launcher_cls = _launcher(recorder)
        self.binary_ext = "cubin"

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        return GPUTarget("cuda", self._device.major * 10 + self._device.minor, 32)

    def get_current_device(self) -> int:
        """The one there is."""
        return 0

    def set_current_device(self, index: int) -> None:
        """There is one."""

    def get_current_stream(self, index: int = 0) -> int:
        """The default."""
        return 0

    def get_device_capability(self, index: int = 0) -> tuple[int, int]:
        """Major and minor."""
        return self._device.major, self._device.minor

    def get_active_torch_device(self) -> torch.device:
        """Where tensors say they are."""
        return _CUDA

    def get_device_interface(self) -> types.ModuleType:
        """Where torch's functions for the device are."""
        return sys.modules["torch.cuda"]

    def map_python_to_cpp_type(self, kind: str) -> str:
        """A type in a launcher's source."""
        return str(nvidia_driver.ty_to_cpp(kind))

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """What autotuners time with."""
        return compiled_once


def compiled_once(call: Callable[[], object], *_: object, **__: object) -> Sequence[float]:
    """What stands for every benchmark: the call is made once, so that it compiles."""
    call()
    return [1.0, 1.0, 1.0]


def resource_usage(image: bytes) -> dict[str, int]:
    """What cuobjdump says a cubin's one kernel takes: REG, STACK, LOCAL, SHARED, CONSTANT (all banks)."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_named(image))
        tool = Path(nvidia_driver.__file__).parent / "bin" / "cuobjdump"
        try:
            done = subprocess.run(
                [str(tool), "--dump-resource-usage", file], capture_output=True, text=True, timeout=60
            )
        except OSError:
            return {}
    found: dict[str, int] = {}
    for measure, value in _MEASURES.findall(done.stdout):
        name = str(measure).partition("[")[0]
        found[name] = found.get(name, 0) + int(value)
    return found


@contextlib.contextmanager
def _named(content: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        yield file.name


def install(device: Device, recorder: Recorder) -> None:
    """Put the stand-in in place for the rest of this process, before a kernel's module is imported."""
    triton.runtime.driver.set_active(StandIn(device, recorder))
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = compiled_once
    _keep_spills()


def _keep_spills() -> None:
    """Have what ptxas says about spills kept with each kernel's metadata, where this Triton can pass it on."""
    if not hasattr(getattr(getattr(triton, "knobs", None), "nvidia", None), "dump_ptxas_log"):
        return
    triton.knobs.nvidia.dump_ptxas_log = True
    make_cubin = nvidia_compiler.CUDABackend.make_cubin

    def kept(self: object, source: object, metadata: dict[str, object], *rest: object) -> object:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            made = make_cubin(self, source, metadata, *rest)
        spills = _SPILLS.findall(said.getvalue())
        metadata["spill_bytes"] = [sum(int(spill[i]) for spill in spills) for i in range(2)] if spills else None
        return made

    nvidia_compiler.CUDABackend.make_cubin = kept
