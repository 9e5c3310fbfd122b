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

import torch

from backends.triton_artifact import CACHE, SOURCE, Artifact, read_artifact
from backends.triton_runtime import Autotuning, load, located
from profiling.harness import triton_native as native

_NEEDED = (".json", ".cubin", ".so")  # of Triton's cache; the rest is for people
_GROUP = "__grp__"
_SETUP = struct.Struct("=IIQIIIIQ")
_ARGUMENT = struct.Struct("=4Q")
_MAGIC, _SETUP_KIND = 0x31464352, 1


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
        os.environ.update({"TRITON_CACHE_DIR": str(folder / CACHE), "HOME": str(folder), "TMPDIR": str(folder)})


def _moved(group: bytes, folder: Path) -> bytes:
    """Triton's list of the files that belong together, which has them with the folder where they were made."""
    try:
        names = [str(name) for name in json.loads(group)["child_paths"]]
    except (ValueError, KeyError, TypeError):
        return group  # not Triton's: a build is the candidate's work
    return json.dumps({"child_paths": {n: str(folder / n) for n in names if n.endswith(_NEEDED)}}).encode()


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup frame: see profiling/native/protocol.h. `words` has an offset for each tensor, None for a scalar."""

    token: int
    slots: int
    slot_bytes: int
    words: tuple[int | None, ...]
    cores: tuple[int, ...]

    @classmethod
    def parse(cls, frame: bytes) -> Setup:
        """Read it. Raises ValueError or struct.error for another frame."""
        magic, kind, token, slots, arguments, cores, _, slot_bytes = _SETUP.unpack_from(frame)
        if (magic, kind) != (_MAGIC, _SETUP_KIND):
            raise ValueError("not a setup frame")
        at = _SETUP.size
        found = [_ARGUMENT.unpack_from(frame, at + i * _ARGUMENT.size) for i in range(arguments)]
        allowed = struct.unpack_from(f"={cores}i", frame, at + arguments * _ARGUMENT.size)
        return cls(token, slots, slot_bytes, tuple(word if tensor else None for tensor, word, *_ in found), allowed)


class _DeviceBytes:
    """Device memory as torch takes it without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def bind(artifact: Artifact, setup: Setup, base: int) -> list[dict[str, object]]:
    """The keywords of `run_kernel` for each slot: tensors over the memory at `base`, and scalars.

    Raises:
        ValueError: the kernel was built for other arguments.
    """
    kinds = [argument.shape is not None for argument in artifact.arguments]
    if kinds != [word is not None for word in setup.words]:
        raise ValueError("the kernel was built for other arguments than it is called with")
    bound = []
    for slot in range(setup.slots):
        start = base + slot * setup.slot_bytes
        keywords: dict[str, object] = {}
        for argument, word in zip(artifact.arguments, setup.words, strict=True):
            if argument.shape is None or word is None:
                keywords[argument.name] = argument.value
            else:
                keywords[argument.name] = _tensor(start + word, argument.shape, argument.dtype)
        bound.append(keywords)
    return bound


def _tensor(address: int, shape: Sequence[int], dtype: str) -> torch.Tensor:
    kind = getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(dtype, dtype))
    size = kind.itemsize
    for extent in shape:
        size *= extent
    if size == 0:
        return torch.empty(tuple(shape), dtype=kind, device="cuda")
    return torch.as_tensor(_DeviceBytes(address, size), device="cuda").view(kind).view(tuple(shape))


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
        self._run: Callable[..., object] = load(self._path).run_kernel

    def calls(self, keywords: Mapping[str, object]) -> Callable[[], None]:
        """A call with these keywords. What it raises ends the process, the last line that it prints saying where."""
        run, path = self._run, self._path

        def call() -> None:
            try:
                run(**keywords)
            except BaseException as error:
                fail(error, path)

        return call


def fail(error: BaseException, path: Path) -> None:
    """Print what the candidate raised, from its own first frame on and its place in the last line; end the process."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace, file=sys.stderr)
    print(located(error, path), file=sys.stderr, flush=True)
    native.exit_now(native.FAULTED)
