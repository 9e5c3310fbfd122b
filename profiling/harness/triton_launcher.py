"""Starts Triton workers, and has one of them choose among the configurations of an autotuned kernel."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from backends.host_compiler import find_compiler
from backends.process import clean_environment
from backends.triton_artifact import Choices
from profiling.harness.launcher import Ends, Inherited, Process
from profiling.harness.mappings import executable_files
from profiling.harness.runner_build import READ_ONLY_TABLES, Builder
from profiling.types import HarnessFault

_ROOT = Path(__file__).parents[2]
# Not `-m`: it puts the working folder first on the path, and a user's `torch.py` there must not be taken for ours.
_SERVE = "import sys; sys.path[:] = filter(None, sys.path); from profiling.harness.triton_zygote import main; main()"
_PROFILED = (
    "import sys; sys.path[:] = filter(None, sys.path); from profiling.harness.triton_profiled import main; main()"
)
_NATIVE = Path(__file__).parent.parent / "native"
_UNITS = ("walls_c.cpp", "walls.cpp", "seal.cpp", "gpu.cpp")
_START_S = 180.0  # torch from a cold network disk, and one C file to compile
_FORK_S = 20.0
_END_MS = 5000
_MESSAGE_BYTES = 1 << 16
_CHOICES_BYTES = 1 << 20
_CHOICES: TypeAdapter[dict[str, dict[str, int]]] = TypeAdapter(dict[str, dict[str, int]])


def build_library(cache: Path) -> Path:
    """Build, or find in `cache`, the native part of Triton workers. No CUDA toolkit is needed.

    Raises:
        ToolchainError: no C++ compiler.
        HarnessFault: the compiler rejects our own sources.
    """
    headers = ("gpu.h", "gpu_kernels.h", "seal.h", "walls.h")
    files = {name: (_NATIVE / name).read_text(encoding="utf-8") for name in (*_UNITS, *headers)}
    return Builder(find_compiler(), cache)("worker.so", files, _UNITS, ("-shared", "-fPIC", READ_ONLY_TABLES, "-ldl"))


def profiled_command(library: Path, arch: str, bundle: Path, gpu: str, artifact: Path | None = None) -> list[str]:
    """A program that makes one call of `artifact`, or of each that comes on a line of its input, and says how it ended.

    A profiler that follows children is started once for many, and torch is imported once. The program needs
    `profiled_environment`.

    Args:
        library: the native part of Triton workers.
        arch: of the GPU, such as `sm_90`.
        bundle: a staged call.
        gpu: UUID.
        artifact: of the Triton backend.
    """
    capability = "".join(filter(str.isdigit, arch))
    line = [sys.executable, "-c", _PROFILED, str(library), capability, str(bundle), gpu]
    return line if artifact is None else [*line, str(artifact)]


def profiled_environment(cache: Path) -> dict[str, str]:
    """What a profiled command needs of the environment; builds are kept in `cache`."""
    return {
        "PYTHONPATH": str(_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(cache.absolute() / "harness" / "triton"),
    }


class TritonLauncher:
    """A `Launcher` whose workers are forked from one process, which is started when the first worker is.

    Args:
        library: the native part (`build_library`).
        arch: of the GPU, such as `sm_90`.
        cache: where builds are kept; Triton's own native part goes there too.
        environment: what workers see beside the usual; must leave them the task's GPU alone.
    """

    def __init__(self, library: Path, arch: str, cache: Path, environment: Mapping[str, str]) -> None:
        self._library = library
        self._capability = "".join(filter(str.isdigit, arch))
        self._cache = cache.absolute() / "harness" / "triton"
        self._environment = dict(environment)
        self._parent: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._known: frozenset[str] = frozenset()

    def launch(self, artifact: Path, inherited: Inherited, cores: int) -> Process:
        """Start a worker for an artefact of the Triton backend. Raises HarnessFault."""
        return self.fork(artifact, inherited)

    def prepare(self, count: int, cores: Sequence[int]) -> None:
        """They are forked from a process without a GPU: nothing is opened ahead."""

    def fork(self, artifact: Path, inherited: Inherited, *choices: int) -> Process:
        """Start a worker; `choices` is a memory file where it may autotune.

        Raises:
            HarnessFault: it cannot be started.
        """
        ends = Ends()
        try:
            forked = self._fork(artifact, (inherited.channel, inherited.arena, ends.told, ends.output, *choices), ends)
        except BaseException:
            ends.close()
            raise
        ends.started()
        return forked

    def _fork(self, artifact: Path, descriptors: Sequence[int], ends: Ends) -> Process:
        channel = self._channel or self._start()
        folder = Path(tempfile.gettempdir(), f"roofclimb-{secrets.token_hex(8)}")
        request = json.dumps({"artifact": str(artifact), "folder": str(folder)})
        try:
            channel.settimeout(_FORK_S)
            socket.send_fds(channel, [request.encode()], list(descriptors))
            _, handles, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 1)
        except OSError as error:
            self.close()  # else an answer that comes late would be taken for that of another worker
            raise HarnessFault(f"the parent of Triton's workers does not answer: {error}") from error
        if not handles:
            self.close()  # the next worker gets a new one
            raise HarnessFault("the parent of Triton's workers has ended")
        return _Forked(handles[0], folder, self._known, ends)

    def close(self) -> None:
        """End the parent of the workers."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._parent is not None:
            self._parent.kill()
            self._parent.wait()
            self._parent = None

    def _start(self) -> socket.socket:
        self._cache.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(theirs.fileno()), str(self._library), self._capability],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=clean_environment(
                {
                    **self._environment,
                    "PYTHONPATH": str(_ROOT),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONUNBUFFERED": "1",
                    "TRITON_CACHE_DIR": str(self._cache),
                    "LANG": "C.UTF-8",
                    "OMP_NUM_THREADS": "1",
                }
            ),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(_START_S)
        try:
            said = _hear(ours)
        except OSError as error:
            ours.close()
            self.close()
            raise HarnessFault(f"torch and Triton could not be loaded for workers: {error}") from error
        if "ready" not in said:
            ours.close()
            self.close()
            raise HarnessFault(f"Triton cannot run kernels here: {said.get('fault')}")
        self._channel = ours
        self._known = executable_files(self._parent.pid)
        return ours


def _hear(channel: socket.socket) -> dict[str, object]:
    message = channel.recv(_MESSAGE_BYTES)
    if not message:
        raise ConnectionResetError("it has ended")
    answer: dict[str, object] = json.loads(message)
    return answer


@dataclass(frozen=True, slots=True)
class _Forked:
    """A worker's first process, which is not our child, and the folder that it leaves where nothing hides /tmp.

    All that it started ends with it.
    """

    handle: int
    folder: Path
    known: frozenset[str]
    ends: Ends

    def expects(self, path: str) -> bool:
        """Whether a file that the worker has mapped as code is torch's or what that brought, or of its own build."""
        return path in self.known or path.startswith(f"{self.folder}/")

    def end(self) -> None:
        """Kill it, and wait for its end."""
        try:
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        except ProcessLookupError:
            pass
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        poll.poll(_END_MS)
        os.close(self.handle)
        shutil.rmtree(self.folder, ignore_errors=True)


class Tuning:
    """A `Launcher` of workers whose autotuners choose on the first call. Use it for one worker.

    Args:
        launcher: starts it.
    """

    def __init__(self, launcher: TritonLauncher) -> None:
        self._launcher = launcher
        self._choices = os.memfd_create("roofclimb-choices", os.MFD_CLOEXEC)

    def launch(self, artifact: Path, inherited: Inherited, cores: int) -> Process:
        """Start the worker. Raises HarnessFault."""
        return self._launcher.fork(artifact, inherited, self._choices)

    def prepare(self, count: int, cores: Sequence[int]) -> None:
        """One worker needs no other."""

    def chosen(self) -> Choices:
        """What its autotuners chose on the calls made so far, as the worker says; empty where it says nothing valid."""
        try:
            return _CHOICES.validate_json(os.pread(self._choices, _CHOICES_BYTES, 0))
        except ValidationError:
            return {}

    def close(self) -> None:
        """Give the memory file up. The other launcher goes on."""
        os.close(self._choices)
