"""One timing at a time on each device: two runs that time at once would bill each other's work to their kernels.

The machine's cores have one lock, each GPU has its own: kernels on two GPUs do not disturb each other.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Not the temporary folder of TMPDIR: runs that have another one must find the same lock.
LOCK = Path("/tmp/roofclimb-timing.lock")
_UUID = re.compile(r"[A-Za-z0-9-]+")
_POLL_S = 0.1
_SAY_AFTER_S = 2.0


def say_waiting() -> None:
    """Tell a person why nothing moves."""
    print("waiting for another run's timing", file=sys.stderr, flush=True)


def lock_file(gpu: str | None) -> Path:
    """The lock of a GPU by its UUID, of the machine's cores for None.

    Raises:
        ValueError: `gpu` is no UUID.
    """
    if gpu is None:
        return LOCK
    if not _UUID.fullmatch(gpu):
        raise ValueError(f"{gpu!r} is no UUID of a GPU")
    return LOCK.with_name(f"roofclimb-timing-{gpu}.lock")


@contextmanager
def exclusive_timing(
    lock: Path | None = None,
    stopped: Callable[[], bool] | None = None,
    waiting: Callable[[], None] | None = None,
    *,
    gpu: str | None = None,
) -> Iterator[None]:
    """Wait until no other process of any user times here, and keep it so. The lock goes with the process that holds it.

    Args:
        lock: the file; None takes the one of `gpu`.
        stopped: whether to give up waiting.
        waiting: called once when the wait has lasted 2 s; None prints a line to standard error.
        gpu: UUID of the GPU that is timed on, None for the machine's cores.

    Raises:
        InterruptedError: `stopped` while another process held the lock.
        OSError: the lock file cannot be made.
        ValueError: `gpu` is no UUID.
    """
    descriptor = _open(lock_file(gpu) if lock is None else lock)
    try:
        _wait(descriptor, stopped, waiting or say_waiting)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, stopped: Callable[[], bool] | None, waiting: Callable[[], None]) -> None:
    start, said = time.monotonic(), False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        if stopped is not None and stopped():
            raise InterruptedError("stopped while waiting for another run's timing")
        if not said and time.monotonic() - start >= _SAY_AFTER_S:
            waiting()
            said = True
        time.sleep(_POLL_S)


def _open(lock: Path) -> int:
    # Read-only is enough to lock, and in a shared /tmp nobody may open another user's file for creation.
    try:
        return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(descriptor, 0o644)  # a umask of 077 would lock other users out
    except OSError:
        pass  # another user made it in this moment
    return descriptor
