"""The one process runner: wall limit, bounded output, and a process group that is killed whole."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from backends.walls import Walls

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


@dataclass(frozen=True, slots=True)
class Completed:
    """How a process ended. `returncode` is negative for a signal; output is decoded and cut at the limit."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool


class Ended(Exception):
    """A process was ended by its owner: what it had found by then says nothing of what it worked on."""


class Ending:
    """Lets one thread end the processes that another one runs, those to come included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaders: set[int] = set()
        self._ended = False

    @contextmanager
    def governs(self) -> Iterator[None]:
        """Within this, processes of the calling thread can be ended. A thread it starts must be given its context."""
        token = _ENDING.set(self)
        try:
            yield
        finally:
            _ENDING.reset(token)

    def end(self) -> None:
        """Kill their groups. Whoever waits for one of them, or would start another, gets `Ended`."""
        with self._lock:
            self._ended = True
            for leader in self._leaders:
                kill_group(leader)

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    def _add(self, leader: int) -> None:
        with self._lock:
            self._leaders.add(leader)
            if self._ended:
                kill_group(leader)

    def _remove(self, leader: int) -> None:
        with self._lock:
            self._leaders.discard(leader)


_ENDING: ContextVar[Ending | None] = ContextVar("ending", default=None)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment from an allow-list: no key of ours ever reaches a child."""
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    env.update(extra or {})
    return env


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads, if any of it is left."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def run_process(
    argv: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    max_output_bytes: int = 4 << 20,
    walls: Walls | None = None,
) -> Completed:
    """Run `argv` to its end or its limit; whatever it left running in its group is killed.

    Args:
        argv: program and arguments, never a shell string.
        timeout_s: wall limit; past it the whole group is killed and `timed_out` is set.
        cwd: working directory.
        env: variables added to the allow-listed environment.
        stdin: text for standard input.
        max_output_bytes: kept per stream; the rest is read and dropped.
        walls: what the program may open; None leaves it as free as we are.

    Raises:
        FileNotFoundError, PermissionError: the program cannot be started.
        Ended: the `Ending` that governs the calling thread was called upon, before the program began or while it ran.
    """
    ending = _ENDING.get()
    if ending is not None and ending.ended:
        raise Ended(argv[0])
    start = time.monotonic()
    environment = clean_environment(env)

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    process = started() if walls is None else walls.start(started)
    if ending is not None:
        ending._add(process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    kept: list[bytearray] = [bytearray(), bytearray()]
    readers = [
        threading.Thread(target=_drain, args=(stream, kept[i], max_output_bytes), daemon=True)
        for i, stream in enumerate((process.stdout, process.stderr))
    ]
    for reader in readers:
        reader.start()
    try:
        process.stdin.write(stdin.encode())
        process.stdin.close()
    except BrokenPipeError:
        pass
    timed_out = False
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        kill_group(process.pid)
        process.wait()
        if ending is not None:
            ending._remove(process.pid)
    for reader in readers:
        reader.join(5.0)
    if ending is not None and ending.ended:
        raise Ended(argv[0])
    return Completed(
        returncode=process.returncode,
        stdout=kept[0].decode(errors="replace"),
        stderr=kept[1].decode(errors="replace"),
        seconds=time.monotonic() - start,
        timed_out=timed_out,
    )


def _drain(stream: IO[bytes], kept: bytearray, limit: int) -> None:
    with stream:
        while chunk := stream.read(65536):
            kept.extend(chunk[: max(0, limit - len(kept))])
