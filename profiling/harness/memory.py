"""What an arena lies in: a memory file that a worker maps, or one allocation on a GPU that it opens by CUDA IPC."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from backends.types import ToolchainError
from profiling.findings import Conditions
from profiling.harness.watch import GpuWatch
from profiling.types import HarnessFault, TaskError

Range = tuple[int, int]
"""Address and size in bytes."""

_IPC_BLOCK = 2 << 20  # an IPC handle opens whole blocks of this size: ours hold nothing else
_HANDLE_BYTES = 64
_GPU_ARENA = struct.Struct(f"=48s{_HANDLE_BYTES}sQ")  # struct GpuArena of profiling/native/gpu.h
_MOST_KEPT_BYTES, _KEPT_SHARE = 8 << 30, 8  # of outputs on a GPU, and the part of its memory that they may take
_SHARED = 2.5  # times its shortest, that a flush takes where the GPU is shared; alone it was seen to take up to 1.5
_CONTEXT_BYTES = 1 << 30  # more than a context with nothing in it takes
_FLUSH_L2S = 4  # bytes that push everything else out of the L2, in its sizes


class Memory(Protocol):
    """Bytes that oracle and worker share."""

    fd: int
    """What the worker inherits."""
    bytes: torch.Tensor

    def close(self) -> None:
        """Give it up."""
        ...


class Device(Protocol):
    """Where a task's tensors lie, and what that needs: the host, or one GPU."""

    torch_device: torch.device
    align: int
    """Bytes that a tensor's start is aligned to."""
    gap: int
    """Bytes between two tensors' guards that nobody may touch."""
    one_by_one: bool
    """Whether each timed call is a frame of its own, so that the caches are flushed for each."""
    arena_bytes: int
    """The most that one arena may take."""
    ring_bytes: int
    """More slots than this only cost memory."""
    kept_bytes: int
    """Outputs that may wait to be judged while a worker runs."""
    most_samples: int
    most_blocks: int
    """Where the clock is quiet, more of a short kernel's calls only take longer to judge."""

    @property
    def has_room_for_more(self) -> bool:
        """Whether workers may be started before they are needed."""
        ...

    def room_for(self, workers: int) -> int:
        """How many of these may open the device before there is a candidate for them."""
        ...

    def allocate(self, size: int) -> Memory:
        """Memory of `size` bytes."""
        ...

    def available(self) -> int:
        """Bytes that could be allocated now."""
        ...

    def flush(self, ranges: Sequence[Range]) -> None:
        """Put these out of the caches."""
        ...

    def settle(self) -> None:
        """Wait until what was staged is there."""
        ...

    def conditions(self) -> Conditions | None:
        """How it fares now; None where nothing is known."""
        ...

    def equal(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> bool:
        """Whether the byte tensors of each pair, of one length, are equal."""
        ...


class HostMemory:
    """A memory file, mapped here too."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("roofclimb-arena", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self.bytes = torch.frombuffer(mmap.mmap(self.fd, size), dtype=torch.uint8)

    def close(self) -> None:
        """The mapping goes with the last tensor that looks into it."""
        os.close(self.fd)


class Host:
    """The host's memory.

    Args:
        flush: native, puts a range out of the caches.
        available: bytes that could be allocated now.
    """

    torch_device = torch.device("cpu")
    align = 64
    gap = mmap.PAGESIZE
    one_by_one = False
    arena_bytes, ring_bytes, kept_bytes = 1 << 30, 64 << 20, 1 << 30
    most_samples, most_blocks = 512, 60

    def __init__(self, flush: Path, available: Callable[[], int]) -> None:
        function = ctypes.CDLL(str(flush)).flush_range
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        function.restype = None
        self._flush = function
        self._available = available
        self._memcmp = ctypes.CDLL(None).memcmp
        self._memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    @property
    def has_room_for_more(self) -> bool:
        """A worker on the host starts in no time."""
        return False

    def room_for(self, workers: int) -> int:
        """None is started ahead."""
        return 0

    def allocate(self, size: int) -> Memory:
        """A memory file."""
        return HostMemory(size)

    def available(self) -> int:
        """Of main memory."""
        return self._available()

    def flush(self, ranges: Sequence[Range]) -> None:
        """Line by line."""
        for address, size in ranges:
            self._flush(address, size)

    def settle(self) -> None:
        """Host writes are there at once."""

    def conditions(self) -> Conditions | None:
        """Nothing is read beside a kernel that has the host's cores."""
        return None

    def equal(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> bool:
        """By `memcmp`."""
        return all(self._memcmp(a.data_ptr(), b.data_ptr(), a.numel()) == 0 for a, b in pairs)


class _DeviceBytes:
    """Device memory as torch takes it without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def device_bytes(address: int, size: int) -> torch.Tensor:
    """Device memory of this process as uint8 (size,), without a copy."""
    return torch.as_tensor(_DeviceBytes(address, size), device="cuda")


class GpuMemory:
    """One allocation of whole IPC blocks. `fd` is a memory file that says where it is."""

    def __init__(self, size: int, uuid: str) -> None:
        whole = -(-size // _IPC_BLOCK) * _IPC_BLOCK
        address = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(whole))
        self._address = address.value
        handle = ctypes.create_string_buffer(_HANDLE_BYTES)
        try:
            _call("cuIpcGetMemHandle", handle, ctypes.c_uint64(self._address))
        except HarnessFault:
            _call("cuMemFree_v2", ctypes.c_uint64(self._address))
            raise
        self.bytes = device_bytes(self._address, size)
        self.fd = os.memfd_create("roofclimb-arena", os.MFD_CLOEXEC)
        os.write(self.fd, _GPU_ARENA.pack(uuid.encode(), handle.raw, whole))

    def close(self) -> None:
        """Free it: whoever still looks into it is wrong."""
        os.close(self.fd)
        torch.cuda.synchronize()
        _call("cuMemFree_v2", ctypes.c_uint64(self._address))


class Gpu:
    """One GPU's memory. It must be the only one that this process sees.

    Args:
        uuid: of the GPU.

    Raises:
        ToolchainError: torch has no CUDA, or sees no GPU.
    """

    align = 256  # what cudaMalloc gives, so that kernels may read 16 bytes at once and TMA finds its alignment
    gap = 0
    one_by_one = True
    arena_bytes, ring_bytes = 4 << 30, 256 << 20
    most_samples, most_blocks = 100, 40

    def __init__(self, uuid: str) -> None:
        if not torch.cuda.is_available():
            raise ToolchainError("torch sees no GPU: install a torch that is built for CUDA, and check nvidia-smi")
        self._uuid = uuid
        self._watch = GpuWatch(uuid)
        self._flush_s = math.inf
        self._shared: bool | None = None  # not seen where nothing is flushed
        self.torch_device = torch.device("cuda")
        torch.set_default_device(self.torch_device)
        torch.cuda.init()
        size = _FLUSH_L2S * torch.cuda.get_device_properties(0).L2_cache_size
        self._flushing = torch.empty(max(size, 64 << 20) // 4, dtype=torch.float32)
        self.kept_bytes = min(_MOST_KEPT_BYTES, torch.cuda.mem_get_info()[1] // _KEPT_SHARE)

    @property
    def has_room_for_more(self) -> bool:
        """While more than half of the memory is free: a context alone takes half a gigabyte."""
        free, total = torch.cuda.mem_get_info()
        return bool(2 * free > total)

    def room_for(self, workers: int) -> int:
        """As many as leave half of the memory free."""
        free, total = torch.cuda.mem_get_info()
        return max(0, min(workers, int(2 * free - total) // (2 * _CONTEXT_BYTES)))

    def allocate(self, size: int) -> Memory:
        """One dedicated allocation."""
        return GpuMemory(size, self._uuid)

    def available(self) -> int:
        """Of device memory, what torch holds unused included."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    def flush(self, ranges: Sequence[Range]) -> None:
        """By writes over all of the L2, then reads, so that no dirty line is left to be billed to a kernel.

        A GPU that also works for somebody else gives its time away in slices: then this takes longer by our clock.
        """
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._flushing.fill_(1.0)
        self._flushing.sum()
        torch.cuda.synchronize()
        spent = time.perf_counter() - start
        self._flush_s = min(self._flush_s, spent)
        self._shared = spent > _SHARED * self._flush_s

    def settle(self) -> None:
        """Staging is asynchronous; the worker is another process."""
        torch.cuda.synchronize()

    def conditions(self) -> Conditions | None:
        """By the driver, some milliseconds ago at most, and by how long the last flush took."""
        latest = self._watch.latest or Conditions(None, None, None, None)
        return replace(latest, shared=self._shared)

    def equal(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> bool:
        """On the device, asked for once."""
        return not bool(torch.stack([(a != b).any() for a, b in pairs]).any()) if pairs else True


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    result = getattr(_driver(), name)(*arguments)
    if result != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        said = text.value.decode() if text.value else f"error {result}"
        if result == 2:
            raise TaskError(f"the GPU is out of memory: use smaller dims ({name}: {said})")
        raise HarnessFault(f"{name}: {said}")
