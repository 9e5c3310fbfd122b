"""How a worker's process is started, and ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from profiling.harness.walled import serve_command
from profiling.types import HarnessFault


@dataclass(frozen=True, slots=True)
class Inherited:
    """Descriptors of a worker: what it talks over, its arena, where its end is told, and where it prints."""

    channel: int
    arena: int
    status: int
    output: int


class Process(Protocol):
    """A started worker."""

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

    def close(self) -> None:
        """End what it keeps for starting workers."""
        ...


class NativeLauncher:
    """Starts the native runner.

    Args:
        runner: the program.
        environment: what workers see beside the usual.
    """

    def __init__(self, runner: Path, environment: Mapping[str, str]) -> None:
        self._runner = runner
        self._environment = dict(environment)

    def launch(self, artifact: Path, inherited: Inherited, cores: int) -> Process:
        """Start it behind its walls. Raises HarnessFault."""
        try:
            candidate = os.open(artifact, os.O_RDONLY)
        except OSError as error:
            raise HarnessFault(f"cannot read {artifact}: {error.strerror}") from error
        descriptors = (inherited.channel, inherited.arena, candidate, inherited.status)
        try:
            process = subprocess.Popen(
                serve_command(self._runner, descriptors),
                stdin=subprocess.DEVNULL,
                stdout=inherited.output,
                stderr=inherited.output,
                env={**worker_environment(cores), **self._environment},
                pass_fds=descriptors,
                start_new_session=True,
            )
        finally:
            os.close(candidate)
        return _Child(process)

    def close(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]

    def expects(self, path: str) -> bool:
        return False

    def end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def worker_environment(threads: int) -> dict[str, str]:
    """The allow-list: what a worker sees of our environment."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    # Threads that spin for more work after `solve` has returned would look like work behind the clock.
    return {**kept, "LANG": "C", "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
