"""A built Triton kernel in the process that runs it: copied to a private folder, loaded, called on device memory."""

from __future__ import annotations

import json
import os
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from backends.torch_arithmetic import computed
from backends.triton_artifact import CACHE, SOURCE, Artifact, read_artifact
from backends.triton_runtime import Autotuning, load, located, scalar
from profiling.harness import triton_native as native
from profiling.harness.memory import device_bytes
from profiling.harness.protocol import MAGIC, SETUP, UNWRITTEN

_NEEDED = (".json", ".cubin", ".so")  # of Triton's cache; the rest is for people
_GROUP = "__grp__"
_SETUP = struct.Struct("=IIQIIIIQ")
_ARGUMENT = struct.Struct("=5Q")


class Image:
    """What a worker needs of an artefact, read before walls hide it.

    Args:
        folder: the artefact.

    Raises:
        OSError, ValueError: it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.artifact: Artifact = read_artifact(folder)
        self._files = {SOURCE: (folder / SOURCE).read_bytes()}
        for path in sorted((folder / CACHE).glob("*/*")):
            if path.suffix in _NEEDED:
                self._files[str(path.relative_to(folder))] = path.read_bytes()

    def write(self, folder: Path) -> None:
        """Put it into the new folder `folder`, for any user to read, and make that Triton's cache in this process."""
        (folder / CACHE).mkdir(parents=True)
        for name, content in self._files.items():
            target = folder / name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(_moved(content, target.parent) if target.name.startswith(_GROUP) else content)
        for found in (folder, *folder.rglob("*")):
            found.chmod(0o755)
        # Triton makes a folder for what it does not find before it asks the compiler, and only that one says why not.
        (folder / CACHE).chmod(0o777)
        os.environ.update({"TRITON_CACHE_DIR": str(folder / CACHE), "HOME": str(folder), "TMPDIR": str(folder)})


def _moved(group: bytes, folder: Path) -> bytes:
    """Triton's list of the files that belong together, which has them with the folder where they were made."""
    try:
        names = [str(name) for name in json.loads(group)["child_paths"]]
    except (ValueError, KeyError, TypeError):
        return group  # not Triton's: a build is the candidate's work
    return json.dumps({"child_paths": {n: str(folder / n) for n in names if n.endswith(_NEEDED)}}).encode()


@dataclass(frozen=True, slots=True)
class Bound:
    """One argument: a tensor at `offset` bytes from the start of its slot, or, without a shape, a value.

    `size` is a tensor's bytes, and `written` whether they are for the kernel to read.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    value: int | float | bool | None
    offset: int
    size: int
    written: bool


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup frame of profiling/native/protocol.h."""

    token: int
    slots: int
    slot_bytes: int
    arguments: tuple[Bound, ...]
    cores: tuple[int, ...]
    apart: bool

    @classmethod
    def parse(cls, frame: bytes) -> Setup:
        """Read it. Raises ValueError, KeyError or struct.error for another frame, or one without names."""
        magic, kind, token, slots, count, cores, apart, slot_bytes = _SETUP.unpack_from(frame)
        if (magic, kind) != (MAGIC, SETUP):
            raise ValueError("not a setup frame")
        at = _SETUP.size
        words = [_ARGUMENT.unpack_from(frame, at + i * _ARGUMENT.size) for i in range(count)]
        at += count * _ARGUMENT.size
        allowed = struct.unpack_from(f"={cores}i", frame, at)
        named = json.loads(frame[at + 4 * cores :])
        bound = [
            Bound(
                name=a["name"],
                dtype=a["dtype"],
                shape=None if a["shape"] is None else tuple(a["shape"]),
                value=a["value"],
                offset=word,
                size=size,
                written=kept != UNWRITTEN,
            )
            for a, (kept, word, _, _, size) in zip(named, words, strict=True)
        ]
        return cls(token, slots, slot_bytes, tuple(bound), allowed, bool(apart))


Outputs = Sequence[tuple[int, int]]
"""Address and size in bytes of each tensor that a call is to write."""


def outputs(setup: Setup, base: int) -> list[Outputs]:
    """Those of each slot."""
    tensors = [a for a in setup.arguments if a.shape is not None and not a.written and a.size > 0]
    return [[(base + slot * setup.slot_bytes + a.offset, a.size) for a in tensors] for slot in range(setup.slots)]


def bind(setup: Setup, base: int) -> list[dict[str, object]]:
    """The keywords of `run_kernel` for each slot: tensors over the memory at `base`, and scalars."""
    return [
        {
            a.name: scalar(a.dtype, a.value)
            if a.shape is None
            else _tensor(base + slot * setup.slot_bytes + a.offset, a.shape, a.dtype)
            for a in setup.arguments
        }
        for slot in range(setup.slots)
    ]


def _tensor(address: int, shape: Sequence[int], dtype: str) -> torch.Tensor:
    kind = getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(dtype, dtype))
    size = kind.itemsize
    for extent in shape:
        size *= extent
    if size == 0:
        return torch.empty(tuple(shape), dtype=kind, device="cuda")
    return device_bytes(address, size).view(kind).view(tuple(shape))


class Kernel:
    """A kernel's module, imported.

    Args:
        folder: where `Image.write` put it.
        artifact: its record.
        tunes: whether its autotuners choose, on the first call; else they use what the record says.

    Raises:
        Exception: whatever the module raises.
    """

    def __init__(self, folder: Path, artifact: Artifact, *, tunes: bool) -> None:
        self._path = folder / SOURCE
        self.autotuning = Autotuning(None if tunes else artifact.choices)
        # An autotuner that tunes computes with torch itself.
        self._known = None if tunes else frozenset(artifact.torch)
        self._run: Callable[..., object] = load(self._path).run_kernel

    def calls(self, keywords: Mapping[str, object]) -> Callable[[], None]:
        """A call with these keywords. What it raises ends the process, the last line that it prints saying where."""
        run, path, known = self._run, self._path, self._known

        def call() -> None:
            try:
                if known is None:
                    run(**keywords)
                    return
                with computed() as found:
                    run(**keywords)
            except BaseException as error:
                fail(error, path)
            if not known.issuperset(found):
                _end(
                    f"computes with torch ({', '.join(sorted({*found} - known))}), which it did not while it was built"
                )

        return call


def fail(error: BaseException, path: Path) -> NoReturn:
    """Print what the candidate raised, from its own first frame on and its place in the last line; end the process."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace, file=sys.stderr)
    _end(located(error, path))


def _end(why: str) -> NoReturn:
    print(why, file=sys.stderr, flush=True)
    native.exit_now(native.FAULTED)
