"""The process that works on one task of a night: `python -m agent.nightly.child ORDER`.

A process of its own, so that whatever happens to it (a crash in native code, memory used up) happens to that task
alone, and so that keys, locks and workers of one run are gone before the next begins.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from agent.allowance import Allowance
from agent.errors import RoofclimbError
from agent.nightly.asked import Job
from agent.nightly.survey import Survey, survey
from agent.progress import Progress, make_progress
from agent.run import Run
from agent.run_checks import check_run
from agent.run_folder import copy_inputs, is_run, taken_back_if_empty
from agent.session import proceed

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


def main() -> None:
    """Work on one task of a night. What came of it goes to stdout as JSON; the night says the rest."""
    order = Order.model_validate_json(sys.argv[1])
    _die_with(order.parent)
    said: Mapping[str, Any]
    try:
        said, code = work(order, lambda iterations: make_progress(sys.stderr, iterations)), 0
    except RoofclimbError as error:
        said, code = {"error": str(error)}, error.exit_code
    except Exception as bug:  # as in every command: one line
        said, code = {"error": f"bug: {type(bug).__name__}: {bug} (resume the run with --debug and report it)"}, 1
    print(json.dumps(said))
    sys.exit(code)


def work(order: Order, progress: Callable[[int], Progress]) -> Mapping[str, Any]:
    """Begin the run, or go on with it, as far as the order goes; the survey, where that is how far.

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
            proceed(folder, progress, allowance=allowance)
            return {}
        found: list[Survey] = []

        def look(run: Run) -> None:
            found.append(survey(run))

        proceed(folder, progress, look, allowance)
        return found[0].model_dump() if found else {}


def _die_with(parent: int) -> None:
    """A night that is killed leaves nothing behind that works on its runs: they can be resumed at once."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the line above
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
