"""The binary frames between the oracle and a worker; `profiling/native/protocol.h` is the other side."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

MAX_SLOTS = 1024
MAX_FRAME = 24 + 24 * MAX_SLOTS  # of a `Done`
MAGIC = 0x31464352  # this and what follows: also for the worker that is Python
SETUP, HELLO, LOAD, LOADED, RUN, DONE = range(1, 7)
HEAD = struct.Struct("=IIQ")
CALL = struct.Struct("=qqq")
SCALAR, TENSOR, UNWRITTEN = range(3)  # what an argument is
LAYERS = ("network", "ipc", "pid", "mount", "user", "seccomp", "sealed")


class BadFrame(Exception):
    """A frame that the worker's own code would not have sent."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call by the worker's clock, and what `solve` returned (0 where it returns nothing).

    On a GPU the time ends with a device-wide synchronisation, `event_nanoseconds` where the default stream ended.
    """

    nanoseconds: int
    code: int
    event_nanoseconds: int


def setup_frame(
    token: int,
    slots: int,
    slot_bytes: int,
    arguments: Sequence[tuple[int, int, int, int, int]],
    cores: Sequence[int],
    names: bytes = b"",
    *,
    apart: bool = False,
) -> bytes:
    """Shape of the arena, arguments (kept, word, begin, end, size), cores to run on, and what arguments are called.

    Sent again to a worker on a GPU, it rebinds the arguments; there is no answer. `apart` is for a sanitizer's staged
    call, in which each tensor has memory of its own.
    """
    head = HEAD.pack(MAGIC, SETUP, token) + struct.pack("=IIIIQ", slots, len(arguments), len(cores), apart, slot_bytes)
    return head + b"".join(struct.pack("=5Q", *a) for a in arguments) + struct.pack(f"={len(cores)}i", *cores) + names


def load_frame(token: int) -> bytes:
    """Ask the worker to load its candidate."""
    return HEAD.pack(MAGIC, LOAD, token)


def run_frame(
    token: int, first: int, count: int, lead_us: int = 0, *, flush: bool = False, together: bool = False
) -> bytes:
    """Ask for calls on slots [first, first + count); on a GPU with a lead, that ends by flushing the L2 (gpu.h).

    Each call is timed by itself, or all `together` behind one lead: then each has an equal share.
    """
    return HEAD.pack(MAGIC, RUN, token) + struct.pack("=5I4x", first, count, lead_us, flush, together)


def read_hello(frame: bytes, token: int) -> dict[str, bool]:
    """Which walls stand."""
    (layers,) = struct.unpack("=Q", _body(frame, HELLO, token, 8))
    return {name: bool(layers >> i & 1) for i, name in enumerate(LAYERS)}


def read_loaded(frame: bytes, token: int) -> str | None:
    """None when the candidate was loaded, else the loader's message."""
    status, _, text = struct.unpack("=iI1024s", _body(frame, LOADED, token, 1032))
    if status == 0:
        return None
    return bytes(text).partition(b"\0")[0].decode(errors="replace") or "cannot be loaded"


def read_done(frame: bytes, token: int, count: int) -> list[Call]:
    """The calls of a run."""
    body = _body(frame, DONE, token, 8 + CALL.size * count)
    if struct.unpack_from("=Q", body)[0] != count:
        raise BadFrame("a reply for another number of calls")
    return [Call(*CALL.unpack_from(body, 8 + CALL.size * i)) for i in range(count)]


def _body(frame: bytes, kind: int, token: int, size: int) -> bytes:
    if len(frame) != HEAD.size + size or HEAD.unpack_from(frame) != (MAGIC, kind, token):
        raise BadFrame("a frame that answers nothing that was asked")
    return frame[HEAD.size :]
