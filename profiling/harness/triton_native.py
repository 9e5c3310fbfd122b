"""The native library of Triton workers: the walls, and the GPU's clock and memory. `profiling/native` is its source."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

# Walls, as in profiling/native/walls.h.
PID, MOUNT, USER, SECCOMP, SEALED = 4, 8, 16, 32, 64
_SERVE_FILE_BYTES = 1 << 20
_OWN_UIDS = 200000
_PR_SET_PDEATHSIG = 1
BROKEN, FAULTED = 70, 71  # kBroken and kFaulted of profiling/native/runner.cpp

_MOST_OUTPUTS = 1024  # kMostOutputs of profiling/native/gpu.h
_Solve = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class _Arena(ctypes.Structure):
    _fields_ = (("uuid", ctypes.c_char * 48), ("handle", ctypes.c_uint8 * 64), ("bytes", ctypes.c_uint64))


class _Range(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


class _Times(ctypes.Structure):
    _fields_ = (("synced", ctypes.c_int64), ("event", ctypes.c_int64))


class GpuError(Exception):
    """What the driver says is wrong."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Calls in nanoseconds: until the whole device was idle, and until its default stream was."""

    synced: int
    event: int


class Native:
    """The library, loaded.

    Args:
        library: its file.
    """

    def __init__(self, library: Path) -> None:
        self._library = found = ctypes.CDLL(str(library))
        for name in ("open", "stage", "open_alone", "place", "calls", "calls_each", "profiled_call"):
            getattr(found, f"gpu_{name}").restype = ctypes.c_char_p
        found.walls_enter_namespaces.restype = ctypes.c_uint64
        for name in ("walls_private_tree", "walls_drop_privileges", "walls_filter_system_calls", "walls_seal"):
            getattr(found, name).restype = ctypes.c_bool
        found.walls_drop_privileges.argtypes = (ctypes.c_bool, ctypes.c_uint)
        found.walls_limit_resources.argtypes = (ctypes.c_uint64,)
        found.walls_filter_system_calls.argtypes = (ctypes.c_bool,)

    def open_arena(self, descriptor: int) -> int:
        """Open the device's primary context and map the arena that a memory file tells of; its device address.

        Raises:
            GpuError: it cannot be opened.
        """
        arena = _Arena.from_buffer_copy(os.pread(descriptor, ctypes.sizeof(_Arena), 0))
        base = ctypes.c_uint64()
        _check(self._library.gpu_open(ctypes.byref(arena), ctypes.byref(base)))
        return base.value

    def stage(self, uuid: str, data: bytes) -> int:
        """Open the device's primary context and copy `data` into memory of its own; its device address.

        Raises:
            GpuError: it cannot be opened, or has no room.
        """
        base = ctypes.c_uint64()
        _check(self._library.gpu_stage(uuid.encode(), data, ctypes.c_uint64(len(data)), ctypes.byref(base)))
        return base.value

    def stage_apart(self, uuid: str, parts: Sequence[bytes | int]) -> list[int]:
        """The same with memory for each of `parts`, bytes or a number of bytes to be left as they are; its addresses.

        Raises:
            GpuError: it cannot be opened, or has no room.
        """
        _check(self._library.gpu_open_alone(uuid.encode()))
        addresses = []
        for part in parts:
            data, size = (None, part) if isinstance(part, int) else (part, len(part))
            address = ctypes.c_uint64()
            _check(self._library.gpu_place(data, ctypes.c_uint64(size), ctypes.byref(address)))
            addresses.append(address.value)
        return addresses

    def timed(
        self,
        solves: Sequence[Callable[[], None]],
        lead_us: int,
        flush: bool,
        outputs: Sequence[Sequence[tuple[int, int]]],
        *,
        together: bool,
    ) -> list[Timed]:
        """Call each of `solves`, which must not raise, one behind the other, by the native clock. Raises GpuError.

        Between calls that are timed each alone no Python runs: what it takes there varies with what the kernel did.

        Args:
            solves: the calls.
            lead_us, flush: those of a run frame: how long the GPU is held before, and whether L2 is flushed.
            outputs: addresses and sizes of what each call writes, as many for each.
            together: take one time of all calls.
        """

        def solve(place: int | None) -> int:
            solves[place or 0]()
            return 0

        count = len(solves)
        places, codes = (ctypes.c_void_p * count)(*range(count)), (ctypes.c_int64 * count)()
        ranges = [_Range(address, size) for call in outputs for address, size in call] if lead_us else []
        spoiled = min(len(ranges), _MOST_OUTPUTS) if together else len(ranges) // count
        call = self._library.gpu_calls if together else self._library.gpu_calls_each
        times = (_Times * (1 if together else count))()
        how = (ctypes.c_uint32(count), ctypes.c_uint32(lead_us), ctypes.c_uint32(flush))
        of_outputs = ((_Range * max(1, len(ranges)))(*ranges), ctypes.c_uint32(spoiled))
        _check(call(_Solve(solve), places, *how, *of_outputs, codes, times))
        return [Timed(t.synced, t.event) for t in times]

    def profiled(self, solve: Callable[[], None]) -> None:
        """Call `solve`, which must not raise, between the marks that a profiler waits for. Raises GpuError."""

        def solve_returning(_: int | None) -> int:
            solve()
            return 0

        code = ctypes.c_int64()
        _check(self._library.gpu_profiled_call(_Solve(solve_returning), None, ctypes.byref(code)))

    def enter_namespaces(self) -> int:
        """Before forking: the layers that stand."""
        return int(self._library.walls_enter_namespaces())

    def private_tree(self) -> bool:
        """In the first process of the namespaces. Nothing is hidden: Triton and torch are in use."""
        return bool(self._library.walls_private_tree())

    def close_in(self, layers: int, root: bool, own_uid: int) -> int:
        """In the worker, its GPU open and all loaded, which starts no process after this: the layers that stand."""
        self._library.walls_limit_resources(_SERVE_FILE_BYTES)
        bare = self._library.walls_drop_privileges(root, own_uid)
        if bare and root:
            layers |= USER
        if not bare:
            layers &= ~USER
        die_with_parent()  # a change of user id clears it, so after that
        if self._library.walls_filter_system_calls(bool(layers & PID)):
            layers |= SECCOMP
            if self._library.walls_seal():
                layers |= SEALED
        return layers


def _check(message: bytes | None) -> None:
    if message is not None:
        raise GpuError(message.decode(errors="replace"))


def own_uid() -> int:
    """The user id that a worker of this process gets, where it is started by root."""
    return _OWN_UIDS + os.getpid()


def die_with_parent() -> None:
    """Have this process killed as its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def keep_only(*kept: int) -> None:
    """Close every descriptor past the standard ones but these."""
    begin = 3
    for descriptor in sorted({*kept, os.sysconf("SC_OPEN_MAX")}):
        os.closerange(begin, descriptor)
        begin = descriptor + 1


def ended(pid: int) -> int:
    """Wait for a child's end: its wait status."""
    return os.waitpid(pid, 0)[1]


def exit_now(status: int) -> NoReturn:
    """End without a wait for threads or handlers, which may be the candidate's."""
    os._exit(status)
