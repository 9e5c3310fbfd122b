"""A run resumed on what looks like another machine: `python -m tests.loop.elsewhere RUN_DIR`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.config import Config
from agent.machine import Machine, find_machine
from agent.progress import PlainProgress
from agent.session import proceed
from backends.types import Backend

OTHER = "another-machine"


def elsewhere(config: Config, backend: Backend, warn: Callable[[str], None]) -> Machine:
    """This machine under another identity: what may be compared is decided by that alone."""
    machine = find_machine(config, backend, warn)
    return replace(machine, cpu=replace(machine.cpu, id=OTHER))


if __name__ == "__main__":
    proceed(Path(sys.argv[1]), lambda _: PlainProgress(sys.stderr), find=elsewhere)
