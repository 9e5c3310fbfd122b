"""What this process owes whoever runs it: no other reads its keys, and a signal stops it after the step in hand."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_PR_SET_DUMPABLE = 4


def keep_secrets() -> None:
    """Make this process undumpable: no other process of the user reads its memory or its `/proc/PID/environ`.

    Nor is there ever a core file with keys in it, wherever the machine puts those.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


@contextmanager
def stop_on_signals(stopped: threading.Event, told: Callable[[str], None] | None = None) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks to stop after the step, and says so; a second one ends at once."""

    def ask(number: int, _: FrameType | None) -> None:
        if stopped.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stopped.set()
        if told is not None:  # from a thread of its own: what it locks may be held by what the signal came into
            threading.Thread(target=told, args=("stopping after this step; once more ends at once",)).start()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
