"""The process that works on one task of a night: `python -m agent.nightly.child ORDER`.

A process of its own, so that whatever happens to it (a crash in native code, memory used up) happens to that task
alone, and so that keys, locks and workers of one run are gone before the next begins.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click
from pydantic import BaseModel, ConfigDict

from agent.allowance import Allowance
from agent.artefacts import plain
from agent.command import Result, command
from agent.inspection import finished
from agent.nightly.asked import Job
from agent.nightly.survey import Survey, survey
from agent.progress import Progress, make_progress
from agent.run import Run
from agent.session import check_run, copy_inputs, is_run, proceed, taken_back_if_empty

_PR_SET_PDEATHSIG = 1


class Order(BaseModel):
    """What the night wants done.

    Attributes:
        job: the task.
        folder: of its run, made or not.
        survey: stop before the first question.
        usd, minutes: what may still be spent; None: no limit of the night's.
        parent: the night's process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: Job
    folder: Path
    survey: bool
    usd: float | None
    minutes: float | None
    parent: int


@click.command()
@click.argument("order")
@command
def main(order: str) -> Result:
    """Work on one task of a night; what came of it goes to stdout as JSON."""
    given = Order.model_validate_json(order)
    _die_with(given.parent)
    return work(given, lambda iterations: make_progress(sys.stderr, iterations))


def work(order: Order, progress: Callable[[int], Progress]) -> Result:
    """Begin the run, or go on with it, as far as the order goes.

    Raises:
        RoofclimbError: as a run's exit codes say.
    """
    folder = order.folder
    allowance = Allowance(order.usd, order.minutes)
    with taken_back_if_empty(folder):
        if not is_run(folder):
            config = order.job.load()
            copy_inputs(config, check_run(config), folder)
        if not order.survey:
            return finished(proceed(folder, progress, allowance=allowance), folder)
        found: list[Survey] = []

        def look(run: Run) -> None:
            found.append(survey(run))

        proceed(folder, progress, look, allowance)
        return (plain(found[0]) if found else {}), ""


def _die_with(parent: int) -> None:
    """A night that is killed leaves nothing behind that works on its runs: they can be resumed at once."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the line above
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
