"""One timing at a time on this machine: two runs that time at once would bill each other's work to their kernels."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Not the temporary folder of TMPDIR: runs that have another one must find the same lock.
LOCK = Path("/tmp/roofclimb-timing.lock")
_POLL_S = 0.1
_SAY_AFTER_S = 2.0


def say_waiting() -> None:
    """Tell a person why nothing moves."""
    print("waiting for another run's timing", file=sys.stderr, flush=True)


@contextmanager
def exclusive_timing(
    lock: Path = LOCK, stopped: Callable[[], bool] | None = None, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Wait until no other process of any user times here, and keep it so. The lock goes with the process that holds it.

    Args:
        lock: the file.
        stopped: whether to give up waiting.
        waiting: called once when the wait has lasted 2 s; None prints a line to standard error.

    Raises:
        InterruptedError: `stopped` while another process held the lock.
        OSError: the lock file cannot be made.
    """
    descriptor = _open(lock)
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
