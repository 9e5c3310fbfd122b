"""The parent of Triton workers: it has imported torch and Triton, has never touched CUDA, and forks on request.

Requests come over a socket of whole messages: JSON, with the worker's descriptors. The answer brings a handle of its
first process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver
from triton.compiler.compiler import make_backend

from profiling.harness import triton_native as native
from profiling.harness import triton_worker

MAX_MESSAGE = 1 << 16
_DESCRIPTORS = 5
# What kernels may import: after the walls stand, Python's own files may be out of reach.
_PRELOADED = (
    *("collections", "dataclasses", "enum", "functools", "itertools", "math", "numbers", "operator", "types", "typing"),
    *("triton.language.extra.cuda.libdevice", "triton.language.extra.libdevice", "triton.tools.tensor_descriptor"),
)


def prepare(capability: int) -> None:
    """Do once what every worker would do by starting programs, which its walls forbid.

    Triton's driver part is compiled (or found in its cache) and loaded; tools are asked for their versions, and what
    goes into the keys of Triton's cache is read.

    Raises:
        Exception: whatever stands in the way: no NVIDIA driver, no C compiler.
    """
    for module in _PRELOADED:
        with contextlib.suppress(ImportError):  # not in every version of Triton
            importlib.import_module(module)
    triton.runtime.driver.set_active(CudaDriver())
    backend = make_backend(GPUTarget("cuda", capability, 32))
    backend.hash()
    backend.parse_options({}).hash()
    _triton_key()
    type(backend).add_stages = refuse_to_compile
    torch.cuda.is_available = lambda: True  # asking would initialise CUDA, after which nothing can be forked


def refuse_to_compile(*_: object) -> NoReturn:
    """Stands where Triton's compiler would start."""
    raise RuntimeError(
        "a kernel is launched with argument types, constants or options that it was not compiled for before there was "
        "data: launches must follow from run_kernel's arguments alone"
    )


def _triton_key() -> None:
    try:
        from triton.runtime.cache import triton_key
    except ImportError:
        from triton.compiler.compiler import triton_key
    triton_key()


def _reap() -> None:
    """Let go of workers that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    """Serve the socket whose descriptor is the first argument; the native library and the capability come next."""
    native.die_with_parent()
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        parts = native.Native(Path(sys.argv[2]))
        prepare(int(sys.argv[3]))
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        channel.send(json.dumps({"fault": f"{type(error).__name__}: {said}"}).encode())
        return
    if torch.cuda.is_initialized():
        channel.send(json.dumps({"fault": "CUDA was initialised before a worker was forked"}).encode())
        return
    channel.send(json.dumps({"ready": os.getpid()}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MAX_MESSAGE, _DESCRIPTORS)
        if not message:
            return
        request = json.loads(message)
        _reap()
        pid = os.fork()
        if pid == 0:
            worker_channel, arena, status, output, *rest = descriptors
            given = triton_worker.Descriptors(worker_channel, arena, status, output, rest[0] if rest else None)
            triton_worker.serve(parts, Path(request["artifact"]), Path(request["folder"]), given)
        handle = os.pidfd_open(pid)
        socket.send_fds(channel, [json.dumps({"pid": pid}).encode()], [handle])
        for descriptor in (handle, *descriptors):
            os.close(descriptor)
