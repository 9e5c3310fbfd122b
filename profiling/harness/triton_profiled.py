"""One call of a built Triton kernel on staged data, between the marks that a profiler waits for."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch

from profiling.harness import triton_native as native
from profiling.harness.triton_kernel import Image, Kernel, Setup, bind, fail
from profiling.harness.triton_zygote import prepare


def _profile(parts: native.Native, bundle: Path, gpu: str, artifact: Path, folder: Path) -> NoReturn:
    try:
        staged = bundle.read_bytes()
        (size,) = struct.unpack_from("=Q", staged)
        setup = Setup.parse(staged[8 : 8 + size])
        image = Image(artifact)
        image.write(folder)
        setup, base = _stage(parts, gpu, setup, staged[8 + size :])
        torch.cuda.init()
        (keywords,) = bind(setup, base)
    except (OSError, ValueError, KeyError, struct.error, native.GpuError) as error:
        print(f"{artifact}: {error}", file=sys.stderr, flush=True)
        native.exit_now(native.BROKEN)
    try:
        kernel = Kernel(folder, image.artifact, tunes=False)
    except BaseException as error:
        fail(error, folder / "kernel.py")
    try:
        parts.profiled(kernel.calls(keywords))
    except native.GpuError as error:
        print(error, file=sys.stderr, flush=True)
        native.exit_now(native.FAULTED)
    sys.stdout.flush()
    native.exit_now(0)


def _stage(parts: native.Native, gpu: str, setup: Setup, data: bytes) -> tuple[Setup, int]:
    """Data on the device: the setup, and the address that its offsets count from."""
    if not setup.apart:
        return setup, parts.stage(gpu, data)
    tensors = [a for a in setup.arguments if a.shape is not None]
    wanted = [data[a.offset : a.offset + a.size] if a.written else a.size for a in tensors]
    found = dict(zip((a.name for a in tensors), parts.stage_apart(gpu, wanted), strict=True))
    for number, argument in enumerate(setup.arguments):
        if argument.name in found:
            print(f"argument {number} at {found[argument.name]:#x}", flush=True)
    placed = tuple(replace(a, offset=found.get(a.name, a.offset)) for a in setup.arguments)
    return replace(setup, arguments=placed), 0


def _forked(parts: native.Native, bundle: Path, gpu: str, artifact: Path) -> int:
    """The exit status, as a shell would report it, of a process that makes the call."""
    with tempfile.TemporaryDirectory(prefix="roofclimb-") as folder:
        pid = os.fork()
        if pid == 0:
            _profile(parts, bundle, gpu, artifact, Path(folder) / "kernel")
        how = native.ended(pid)
    return 128 + os.WTERMSIG(how) if os.WIFSIGNALED(how) else os.WEXITSTATUS(how)


def main() -> None:
    """Serve the command line of `profiled_command`."""
    library, capability, bundle, gpu, *single = sys.argv[1:]
    parts = native.Native(Path(library))
    prepare(int(capability))
    if single:
        sys.exit(_forked(parts, Path(bundle), gpu, Path(single[0])))
    for line in sys.stdin:
        print(_forked(parts, Path(bundle), gpu, Path(line.rstrip("\n"))), flush=True)
