"""Running a task's process, and stopping it when the night is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.nightly.child import Order
from agent.nightly.summary import INTERRUPTED

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task's process ended: its exit code (negative for a signal), why in one line, and what it said."""

    code: int
    reason: str
    said: Mapping[str, Any]


class Child(Protocol):
    """Works on one task of a night."""

    def __call__(self, order: Order, stopped: Callable[[], bool]) -> Ended:
        """Do what the order says; end early once `stopped` says so."""
        ...


def run_child(order: Order, stopped: Callable[[], bool]) -> Ended:
    """Have a process work on a task.

    It has a session of its own: Ctrl-C reaches the night alone, which passes it on once, and the run finishes its step.

    Args:
        order: what it is told.
        stopped: whether the night is to stop.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "agent.nightly.child", order.model_dump_json()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    asked = False
    while True:
        try:
            out, _ = process.communicate(timeout=_POLL_S)
            break
        except subprocess.TimeoutExpired:
            if stopped() and not asked:
                process.send_signal(signal.SIGTERM)
                asked = True
    said = _parsed(out)
    if process.returncode < 0:
        if asked:
            return Ended(INTERRUPTED, "stopped by a signal", {})
        name = signal.Signals(-process.returncode).name
        return Ended(process.returncode, f"its process was killed by {name}; the run can be resumed", {})
    return Ended(process.returncode, str(said.get("error", "")), said)


def _parsed(out: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(out)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
