"""A Triton worker: the walls and frames of profiling/native/runner.cpp around a kernel that is Python.

It is forked from a process that imported torch and Triton and never touched CUDA, in three steps: the first process
enters the namespaces, the second is the first of the new PID namespace and reports how the third, the worker, ended.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from profiling.harness import protocol
from profiling.harness import triton_native as native
from profiling.harness.triton_kernel import Image, Kernel, Outputs, Setup, bind, fail, outputs
from profiling.harness.triton_native import GpuError, Native

_RUN = struct.Struct("=IIQ5I4x")
_LOADED = struct.Struct("=IIQiI1024s")


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What a worker inherits; `choices` is a memory file for what its autotuners choose, where they may."""

    channel: int
    arena: int
    status: int
    output: int
    choices: int | None


def serve(parts: Native, artifact: Path, folder: Path, given: Descriptors) -> NoReturn:
    """In a freshly forked process: have a walled worker serve calls of `artifact`, and end as it does.

    Args:
        parts: the native library.
        artifact: the candidate.
        folder: does not exist; the worker's private copy of the artefact.
        given: its descriptors.
    """
    os.setsid()
    native.die_with_parent()
    for standard in (1, 2):
        os.dup2(given.output, standard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    root, own_uid = os.geteuid() == 0, native.own_uid()
    try:
        image = Image(artifact)
    except (OSError, ValueError) as error:
        _broken(f"{artifact}: {error}")
    layers = parts.enter_namespaces()
    first = os.fork()
    if first > 0:
        native.keep_only()
        native.ended(first)
        native.exit_now(0)
    native.die_with_parent()
    if layers & native.MOUNT and not parts.private_tree():
        layers &= ~native.MOUNT
    second = os.fork()
    if second > 0:
        native.keep_only(given.status)
        os.write(given.status, struct.pack("=i", native.ended(second)))
        native.exit_now(0)
    try:
        _Worker(parts, image, folder, given).run(layers, root, own_uid)
    except (OSError, ValueError, KeyError, struct.error, GpuError) as error:
        _broken(str(error))
    native.exit_now(0)


def _broken(what: str) -> NoReturn:
    print(f"worker: {what}", file=sys.stderr, flush=True)
    native.exit_now(native.BROKEN)


class _Worker:
    """The third process. What is raised before the candidate is loaded is our own fault."""

    def __init__(self, parts: Native, image: Image, folder: Path, given: Descriptors) -> None:
        self._parts = parts
        self._image = image
        self._folder = folder
        self._given = given

    def run(self, layers: int, root: bool, own_uid: int) -> None:
        native.die_with_parent()
        os.setsid()
        kept = (self._given.channel, self._given.arena, self._given.choices)
        native.keep_only(*(descriptor for descriptor in kept if descriptor is not None))
        self._channel = socket.socket(fileno=self._given.channel)
        setup = Setup.parse(self._channel.recv(protocol.MAX_FRAME))
        os.sched_setaffinity(0, setup.cores)
        self._image.write(self._folder)
        # The driver opens what the walls forbid, so all that opens anything comes first.
        base = self._parts.open_arena(self._given.arena)
        os.close(self._given.arena)
        torch.cuda.init()
        torch.cuda.synchronize()
        bound = bind(setup, base)
        os.chdir(self._folder)
        layers = self._parts.close_in(layers, root, own_uid)
        self._channel.send(protocol.HEAD.pack(protocol.MAGIC, protocol.HELLO, setup.token) + struct.pack("=Q", layers))

        magic, kind, token = protocol.HEAD.unpack(self._channel.recv(protocol.HEAD.size))
        if (magic, kind) != (protocol.MAGIC, protocol.LOAD):
            raise ValueError("not a load frame")
        try:
            kernel = Kernel(self._folder, self._image.artifact, tunes=self._given.choices is not None)
        except BaseException as error:
            fail(error, self._folder / "kernel.py")
        self._channel.send(_LOADED.pack(protocol.MAGIC, protocol.LOADED, token, 0, 0, b""))
        self._serve(kernel, setup, base, bound)

    def _serve(self, kernel: Kernel, setup: Setup, base: int, bound: Sequence[Mapping[str, object]]) -> None:
        solves, written = [kernel.calls(keywords) for keywords in bound], outputs(setup, base)
        while frame := self._channel.recv(protocol.MAX_FRAME):
            if protocol.HEAD.unpack_from(frame)[:2] == (protocol.MAGIC, protocol.SETUP):
                setup = Setup.parse(frame)
                solves, written = [kernel.calls(keywords) for keywords in bind(setup, base)], outputs(setup, base)
                continue
            magic, kind, token, first, count, lead_us, flush, together = _RUN.unpack(frame)
            if (magic, kind) != (protocol.MAGIC, protocol.RUN) or first + count > len(solves):
                raise ValueError("not a run frame")
            try:
                called = slice(first, first + count)
                calls = self._run(solves[called], written[called], lead_us, bool(flush), bool(together))
            except GpuError as error:
                print(error, file=sys.stderr, flush=True)
                native.exit_now(native.FAULTED)
            if self._given.choices is not None:
                os.pwrite(self._given.choices, json.dumps(kernel.autotuning.chosen()).encode(), 0)
            head = protocol.HEAD.pack(protocol.MAGIC, protocol.DONE, token) + struct.pack("=Q", count)
            self._channel.send(head + calls)

    def _run(
        self,
        solves: Sequence[Callable[[], None]],
        written: Sequence[Outputs],
        lead_us: int,
        flush: bool,
        together: bool,
    ) -> bytes:
        """Times of calls. Those `together` are one batch, of which each has an equal share."""
        times = self._parts.timed(solves, lead_us, flush, written, together=together)
        share = len(solves) // len(times)
        return b"".join(protocol.CALL.pack(t.synced // share, 0, t.event // share) * share for t in times)
