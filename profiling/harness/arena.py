"""Memory that the oracle and one worker share: slots of guarded tensors.

A slot holds every tensor of a case. Each tensor ends as near to the end of its last page as its alignment allows; the
rest of the page is random guard bytes, and in a worker on the host the page after it cannot be touched at all. The
bytes before it are guarded too.
"""

from __future__ import annotations

import json
import mmap
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from profiling.device import memory_available as _memory_available
from profiling.device import memory_total as _memory_total
from profiling.harness import protocol
from profiling.harness.memory import Device
from profiling.scalar_values import scalar_word
from profiling.types import Case, Scalar, TaskError, Tensor

PAGE = mmap.PAGESIZE
_ALIGN = 64
_POOL_BYTES, _GPU_POOLS = 8 << 20, 32
_PIECE = 1 << 26  # torch finds no place among more than 2^31 bytes, and needs eight times their memory for it


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in its slot, in bytes: pages [begin, end), data [offset, offset + size)."""

    tensor: Tensor
    begin: int
    offset: int
    size: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The slot of one case."""

    case: Case
    places: tuple[Place, ...]
    slot_bytes: int

    @classmethod
    def of(cls, case: Case, align: int = _ALIGN, gap: int = PAGE) -> Layout:
        """Lay a case out.

        Args:
            case: whose tensors are placed.
            align: bytes that each is aligned to.
            gap: bytes before, between and after them that nobody may touch.

        Raises:
            TaskError: a tensor's dtype is unknown to torch.
        """
        places = []
        at = gap
        for tensor in case.tensors:
            size = tensor.elements * torch_dtype(tensor.dtype).itemsize
            pages = -(-(size + 2 * align) // PAGE) * PAGE
            offset = at + (pages - size) // align * align
            places.append(Place(tensor, at, offset, size, at + pages))
            at += pages + gap
        return cls(case, tuple(places), at)

    def setup(self, token: int, slots: int, cores: Sequence[int], *, named: bool = False) -> bytes:
        """The worker's setup frame; `named` adds what the arguments are called."""
        placed = iter(self.places)
        arguments = []
        for argument in self.case.arguments:
            if isinstance(argument, Scalar):
                arguments.append((protocol.SCALAR, scalar_word(argument), 0, 0, 0))
            else:
                p = next(placed)
                arguments.append((_kept(p.tensor), p.offset, p.begin, p.end, p.size))
        return protocol.setup_frame(token, slots, self.slot_bytes, arguments, cores, self._names(named))

    def setup_apart(self, cores: Sequence[int], *, named: bool = False) -> bytes:
        """The setup frame of a call under a sanitizer: where each tensor's own bytes lie in a staged slot."""
        placed = iter(self.places)
        arguments = []
        for argument in self.case.arguments:
            if isinstance(argument, Scalar):
                arguments.append((protocol.SCALAR, scalar_word(argument), 0, 0, 0))
            else:
                p = next(placed)
                arguments.append((_kept(p.tensor), p.offset, p.offset, p.offset + p.size, p.size))
        return protocol.setup_frame(0, 1, self.slot_bytes, arguments, cores, self._names(named), apart=True)

    def _names(self, named: bool) -> bytes:
        return json.dumps([_named(a) for a in self.case.arguments]).encode() if named else b""

    def untouchable(self) -> list[tuple[int, int]]:
        """Byte ranges of a slot that no call may change: inputs and guards, adjoining ones as one."""
        ranges: list[tuple[int, int]] = []
        for p in self.places:
            inner = [(p.begin, p.end)] if p.tensor.role == "in" else [(p.begin, p.offset), (p.offset + p.size, p.end)]
            for begin, end in inner:
                if ranges and ranges[-1][1] == begin:
                    ranges[-1] = (ranges[-1][0], end)
                elif end > begin:
                    ranges.append((begin, end))
        return ranges


def _kept(tensor: Tensor) -> int:
    """What a worker is told a tensor is."""
    return protocol.UNWRITTEN if tensor.role == "out" and not tensor.zeroed else protocol.TENSOR


def _named(argument: Tensor | Scalar) -> dict[str, object]:
    if isinstance(argument, Scalar):
        return {"name": argument.name, "dtype": argument.dtype, "shape": None, "value": argument.value}
    return {"name": argument.name, "dtype": argument.dtype, "shape": argument.shape, "value": None}


def torch_dtype(name: str) -> torch.dtype:
    """The torch type of an element type. Raises TaskError for one that cannot be filled (`void`)."""
    dtype = getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(name, name), None)
    if not isinstance(dtype, torch.dtype):
        raise TaskError(f"element type {name} is unknown: declare the tensor's dtype in the task's `tensors`")
    return dtype


def memory_available() -> int:
    """Bytes that could be allocated now, the cgroup's limit included. Raises OSError where that cannot be read."""
    return _known(_memory_available())


def memory_total() -> int:
    """Bytes of memory that this process may use at most. Raises OSError where that cannot be read."""
    return _known(_memory_total())


def _known(size: int | None) -> int:
    if size is None:
        raise OSError("/proc/meminfo does not say how much memory there is")
    return size


def out_of_memory(error: BaseException) -> bool:
    """Whether no memory was to be had; torch says so in a RuntimeError like any other, we in a TaskError."""
    text = str(error)
    told = "not enough memory" in text or "allocate memory" in text or "out of memory" in text
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError | TaskError) and told)


class RandomBytes:
    """A pool of secret bytes, from which poison and guards are cut at random places."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        device = torch.get_default_device()
        self._pool = torch.frombuffer(bytearray(rng.randbytes(_POOL_BYTES)), dtype=torch.uint8).to(device)
        if device.type == "cuda":  # where each piece costs a launch, and bandwidth nothing
            self._pool = torch.cat([self._pool.roll(rng.randrange(_POOL_BYTES)) for _ in range(_GPU_POOLS)])

    def fill(self, target: torch.Tensor) -> None:
        """Fill a byte tensor."""
        at = 0
        while at < target.numel():
            n = min(target.numel() - at, self._pool.numel() // 2)
            start = self._rng.randrange(self._pool.numel() - n + 1)
            target[at : at + n].copy_(self._pool[start : start + n])
            at += n


class Arena:
    """The oracle's side of the shared slots. `fd` is what the worker inherits to find them.

    Args:
        layout: of each slot.
        slots: how many.
        noise: poison and guards.
        device: where they lie.
        room: bytes, where a later layout needs more.
    """

    def __init__(self, layout: Layout, slots: int, noise: RandomBytes, device: Device, room: int = 0) -> None:
        self._noise = noise
        self._device = device
        self._memory = device.allocate(max(room, slots * layout.slot_bytes))
        self.fd = self._memory.fd
        self._bytes: torch.Tensor | None = self._memory.bytes
        self.rebind(layout, slots)

    def rebind(self, layout: Layout, slots: int) -> None:
        """Use the memory for `slots` slots of another layout, which must fit."""
        self.layout = layout
        self.slots = slots
        self._untouchable = layout.untouchable()
        self._kept: list[torch.Tensor | None] = [None] * slots

    def close(self) -> None:
        """Give the memory up. Safe to call twice."""
        if self._bytes is not None:
            self._bytes = None
            self._kept.clear()
            self._memory.close()

    def stage(self, slot: int, inputs: Mapping[str, torch.Tensor]) -> None:
        """Write a call's inputs, poison or zero its outputs, draw new guards, keep what the call must not change."""
        whole = self._slot(slot)
        self._noise.fill(whole)
        for place in self.layout.places:
            if place.tensor.zeroed:
                self._data(slot, place).zero_()
            elif place.tensor.role != "out":
                self._data(slot, place).copy_(inputs[place.tensor.name].contiguous().view(-1).view(torch.uint8))
        self._kept[slot] = whole.clone()

    def damage(self, slot: int) -> str | None:
        """What the call changed that it must not, or None: an input, or bytes around a tensor."""
        whole, kept = self._slot(slot), self._kept[slot]
        assert kept is not None
        if self._device.equal([(whole[begin:end], kept[begin:end]) for begin, end in self._untouchable]):
            return None
        for p in self.layout.places:
            before = self._first(whole, kept, p.begin, p.offset)
            after = self._first(whole, kept, p.offset + p.size, p.end)
            if after is not None:
                return f"wrote out of bounds: {after + 1} bytes after the end of {p.tensor.name}"
            if before is not None:
                return f"wrote out of bounds: {p.offset - p.begin - before} bytes before {p.tensor.name}"
            changed = self._first(whole, kept, p.offset, p.offset + p.size) if p.tensor.role == "in" else None
            if changed is not None:
                width = p.size // max(1, p.tensor.elements)
                return f"changed its input {p.tensor.name}{list(index_of(changed // width, p.tensor.shape))}"
        return "changed what it was not given"

    @staticmethod
    def _first(a: torch.Tensor, b: torch.Tensor, begin: int, end: int) -> int | None:
        """Position of the first unequal byte in [begin, end), counted from `begin`."""
        for at in range(begin, end, _PIECE):
            piece = slice(at, min(at + _PIECE, end))
            unequal = torch.nonzero(a[piece] != b[piece])
            if unequal.numel():
                return at - begin + int(unequal[0])
        return None

    def homes(self) -> dict[str, torch.Tensor]:
        """Memory of the oracle's own for the outputs of one call: having it takes long the first time."""
        outputs = [p for p in self.layout.places if p.tensor.role != "in"]
        return {p.tensor.name: torch.empty(p.size, dtype=torch.uint8) for p in outputs}

    def outputs(self, slot: int, homes: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """Copies of the outputs, in the oracle's own memory, which `homes` are."""
        homes = homes or self.homes()
        return {
            p.tensor.name: homes[p.tensor.name]
            .copy_(self._data(slot, p))
            .view(torch_dtype(p.tensor.dtype))
            .view(p.tensor.shape)
            for p in self.layout.places
            if p.tensor.role != "in"
        }

    def ranges(self, slot: int) -> list[tuple[int, int]]:
        """Address and size of each tensor in this process, for the cache flush."""
        return [(self._data(slot, p).data_ptr(), p.size) for p in self.layout.places]

    def image(self, slot: int) -> bytes:
        """The slot's bytes."""
        return bytes(self._slot(slot).cpu().numpy())

    def _slot(self, slot: int) -> torch.Tensor:
        assert self._bytes is not None, "closed"
        start = slot * self.layout.slot_bytes
        return self._bytes[start : start + self.layout.slot_bytes]

    def _data(self, slot: int, place: Place) -> torch.Tensor:
        return self._slot(slot)[place.offset : place.offset + place.size]


def index_of(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of the `flat`-th element in row-major order."""
    index = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return tuple(reversed(index))
