"""How a worker's process is started, and ended with all that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from profiling.harness.walled import serve_command, wait_command
from profiling.types import HarnessFault

_OPEN_S = 30.0


@dataclass(frozen=True, slots=True)
class Inherited:
    """Descriptors of a worker: what it talks over, and its arena."""

    channel: int
    arena: int


class Ends:
    """Where a worker prints, and where its end is told.

    Attributes:
        output: a memory file.
        status: to be read: four bytes of its wait status, and an end once nothing of it is left.
        told: the other end of `status`, for the worker alone: `started` closes ours.
    """

    def __init__(self) -> None:
        self.output = os.memfd_create("roofclimb-output", os.MFD_CLOEXEC)
        self.status, self.told = os.pipe()

    def started(self) -> None:
        """The worker has its descriptors."""
        os.close(self.told)
        self.told = -1

    def close(self) -> None:
        """Give all up."""
        for descriptor in (self.output, self.status, self.told):
            if descriptor >= 0:
                os.close(descriptor)


class Process(Protocol):
    """A started worker."""

    @property
    def ends(self) -> Ends:
        """What is left to read of it; whoever ends it closes them."""
        ...

    def expects(self, path: str) -> bool:
        """Whether a file that it has mapped as code is its own, and no library that the candidate brought in."""
        ...

    def end(self) -> None:
        """Kill it and what it started, and wait for its end."""
        ...


class Launcher(Protocol):
    """Starts workers."""

    def launch(self, artifact: Path, inherited: Inherited, cores: int) -> Process:
        """Start a worker that will load `artifact` and may use `cores` cores.

        Raises:
            HarnessFault: it cannot be started.
        """
        ...

    def prepare(self, count: int, cores: Sequence[int]) -> None:
        """Have this many workers open the GPU ahead, as far as that goes, and wait until they have."""
        ...

    def close(self) -> None:
        """End what it keeps for starting workers."""
        ...


class NativeLauncher:
    """Starts the native runner.

    Args:
        runner: the program.
        environment: what workers see beside the usual.
        gpu: UUID of the one that they may open ahead, None on the host.
    """

    def __init__(self, runner: Path, environment: Mapping[str, str], gpu: str | None = None) -> None:
        self._runner = runner
        self._environment = dict(environment)
        self._gpu = gpu
        self._waiting: list[_Waiting] = []

    def launch(self, artifact: Path, inherited: Inherited, cores: int) -> Process:
        """Start it behind its walls, or give one that waits its candidate. Raises HarnessFault."""
        try:
            candidate = os.open(artifact, os.O_RDONLY)
        except OSError as error:
            raise HarnessFault(f"cannot read {artifact}: {error.strerror}") from error
        descriptors = (inherited.channel, inherited.arena, candidate)
        try:
            while self._waiting:
                waiting = self._waiting.pop(0)
                if waiting.begin(descriptors):
                    return waiting.child
                waiting.end()
            return self._start(lambda told: serve_command(self._runner, (*descriptors, told)), descriptors, cores)
        finally:
            os.close(candidate)

    def prepare(self, count: int, cores: Sequence[int]) -> None:
        """A context takes a GPU's driver a sixth of a second, one after the other: here it is nobody's time."""
        gpu = self._gpu
        if gpu is None:
            return
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)  # the driver's threads keep what they are started with
        try:
            fresh = [self._start_waiting(gpu, len(cores)) for _ in range(count - len(self._waiting))]
        finally:
            os.sched_setaffinity(0, own)
        deadline = time.monotonic() + _OPEN_S
        for waiting in fresh:
            if waiting.opened(deadline):
                self._waiting.append(waiting)
            else:
                waiting.end()  # whoever needs one starts it, and says what is wrong

    def close(self) -> None:
        """End those that wait."""
        while self._waiting:
            self._waiting.pop().end()

    def _start_waiting(self, gpu: str, cores: int) -> _Waiting:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            control = theirs.fileno()
            child = self._start(lambda told: wait_command(self._runner, control, told, gpu), (control,), cores)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Waiting(child, ours)

    def _start(self, command: Callable[[int], list[str]], descriptors: Sequence[int], cores: int) -> _Child:
        ends = Ends()
        try:
            process = subprocess.Popen(
                command(ends.told),
                stdin=subprocess.DEVNULL,
                stdout=ends.output,
                stderr=ends.output,
                env={**worker_environment(cores), **self._environment},
                pass_fds=(*descriptors, ends.told),
                start_new_session=True,
            )
        except BaseException:
            ends.close()
            raise
        ends.started()
        return _Child(process, ends)


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    ends: Ends

    def expects(self, path: str) -> bool:
        return False

    def end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A worker without a candidate. The end of `control` ends it."""

    child: _Child
    control: socket.socket

    def opened(self, deadline: float) -> bool:
        self.control.settimeout(max(0.0, deadline - time.monotonic()))
        try:
            return bool(self.control.recv(1))
        except OSError:
            return False

    def begin(self, descriptors: Sequence[int]) -> bool:
        if self.child.process.poll() is not None:
            return False
        try:
            socket.send_fds(self.control, [b"b"], list(descriptors))
        except OSError:
            return False
        self.control.close()
        return True

    def end(self) -> None:
        self.control.close()
        self.child.end()
        self.child.ends.close()


def worker_environment(threads: int) -> dict[str, str]:
    """The allow-list: what a worker sees of our environment."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    # Threads that spin for more work after `solve` has returned would look like work behind the clock.
    return {**kept, "LANG": "C", "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
