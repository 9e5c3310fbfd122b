"""One timing at a time on this machine: two runs that time at once would bill each other's work to their kernels."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / "roofclimb-timing.lock"


@contextmanager
def exclusive_timing(lock: Path = LOCK) -> Iterator[None]:
    """Wait until no other process of any user times here, and keep it so. The lock goes with the process that holds it.

    Raises:
        OSError: the lock file cannot be made.
    """
    descriptor = _open(lock)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(lock: Path) -> int:
    # Read-only is enough to lock, and in a shared /tmp nobody may open another user's file for creation.
    try:
        return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
