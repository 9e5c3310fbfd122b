"""Memory that the oracle and one worker share: slots of guarded tensors.

A slot holds every tensor of a case. Each tensor ends as near to the end of its last page as its 64-byte alignment
allows; the rest of the page is random guard bytes, and in a worker on the host the page after it cannot be touched at
all. The bytes before it are guarded too.
"""

from __future__ import annotations

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
_POOL_BYTES = 8 << 20


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

    def setup(self, token: int, slots: int, cores: Sequence[int]) -> bytes:
        """The worker's setup frame."""
        placed = iter(self.places)
        arguments = []
        for argument in self.case.arguments:
            if isinstance(argument, Scalar):
                arguments.append((0, scalar_word(argument), 0, 0))
            else:
                place = next(placed)
                arguments.append((1, place.offset, place.begin, place.end))
        return protocol.setup_frame(token, slots, self.slot_bytes, arguments, cores)


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
    """Whether no memory was to be had; torch says so in a RuntimeError like any other."""
    text = str(error)
    told = "not enough memory" in text or "allocate memory" in text or "out of memory" in text
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and told)


class RandomBytes:
    """A pool of secret bytes, from which poison and guards are cut at random places."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        pool = torch.frombuffer(bytearray(rng.randbytes(_POOL_BYTES)), dtype=torch.uint8)
        self._pool = pool.to(torch.get_default_device())

    def fill(self, target: torch.Tensor) -> None:
        """Fill a byte tensor."""
        at = 0
        while at < target.numel():
            n = min(target.numel() - at, _POOL_BYTES // 2)
            start = self._rng.randrange(_POOL_BYTES - n + 1)
            target[at : at + n].copy_(self._pool[start : start + n])
            at += n


class Arena:
    """The oracle's side of the shared slots. `fd` is the memory file that the worker maps."""

    def __init__(self, layout: Layout, slots: int, noise: RandomBytes, device: Device) -> None:
        self.layout = layout
        self.slots = slots
        self._noise = noise
        self._device = device
        self._memory = device.allocate(slots * layout.slot_bytes)
        self.fd = self._memory.fd
        self._bytes = self._memory.bytes
        self._kept: list[dict[str, torch.Tensor]] = [{} for _ in range(slots)]

    def close(self) -> None:
        """Give the memory up."""
        del self._bytes
        self._memory.close()

    def stage(self, slot: int, inputs: Mapping[str, torch.Tensor]) -> None:
        """Write a call's inputs, poison its outputs and draw new guards. `inputs` are kept for `damage`."""
        kept = self._kept[slot] = {}
        for place in self.layout.places:
            for side, guard in self._guards(slot, place):
                self._noise.fill(guard)
                kept[f"{side} {place.tensor.name}"] = guard.clone()
            data = self._data(slot, place)
            if place.tensor.role == "out":
                self._noise.fill(data)
                continue
            value = inputs[place.tensor.name].contiguous().view(-1).view(torch.uint8)
            data.copy_(value)
            if place.tensor.role == "in":
                kept[place.tensor.name] = value

    def damage(self, slot: int) -> str | None:
        """What the call changed that it must not, or None: an input, or bytes around a tensor."""
        kept = self._kept[slot]
        for place in self.layout.places:
            name = place.tensor.name
            for side, guard in self._guards(slot, place):
                at = self._device.first_difference(guard, kept[f"{side} {name}"])
                if at is not None:
                    where = f"{at + 1} bytes after the end of" if side == "after" else f"{len(guard) - at} bytes before"
                    return f"wrote out of bounds: {where} {name}"
            if place.tensor.role == "in":
                at = self._device.first_difference(self._data(slot, place), kept[name])
                if at is not None:
                    width = place.size // max(1, place.tensor.elements)
                    return f"changed its input {name}{list(index_of(at // width, place.tensor.shape))}"
        return None

    def outputs(self, slot: int) -> dict[str, torch.Tensor]:
        """Copies of the outputs, in the oracle's own memory."""
        return {
            p.tensor.name: self._data(slot, p).clone().view(torch_dtype(p.tensor.dtype)).view(p.tensor.shape)
            for p in self.layout.places
            if p.tensor.role != "in"
        }

    def ranges(self, slot: int) -> list[tuple[int, int]]:
        """Address and size of each tensor in this process, for the cache flush."""
        return [(self._data(slot, p).data_ptr(), p.size) for p in self.layout.places]

    def image(self, slot: int) -> bytes:
        """The slot's bytes."""
        start = slot * self.layout.slot_bytes
        return bytes(self._bytes[start : start + self.layout.slot_bytes].cpu().numpy())

    def _data(self, slot: int, place: Place) -> torch.Tensor:
        start = slot * self.layout.slot_bytes + place.offset
        return self._bytes[start : start + place.size]

    def _guards(self, slot: int, place: Place) -> tuple[tuple[str, torch.Tensor], ...]:
        base = slot * self.layout.slot_bytes
        before = self._bytes[base + place.begin : base + place.offset]
        after = self._bytes[base + place.offset + place.size : base + place.end]
        return (("before", before), ("after", after))


def index_of(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of the `flat`-th element in row-major order."""
    index = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return tuple(reversed(index))
