"""`nightly`: a new night, or one that is gone on with."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from agent.atomic import make_durable
from agent.command import Result
from agent.errors import ConfigError, RoofclimbError
from agent.log import Log, read_log
from agent.nightly import events as ev
from agent.nightly.asked import Asked, Options, read_asked
from agent.nightly.events import NIGHT_EVENT, NightEvent
from agent.nightly.lock import only_night
from agent.nightly.night import Night, names_of, stamped
from agent.nightly.page import as_text
from agent.nightly.summary import INTERRUPTED, NightSummary
from agent.paths import new_night_folder
from agent.this_process import keep_secrets, stop_on_signals

LOG = "night.jsonl"


class NightNotDone(RoofclimbError):
    """Not every task finished; the exit code is that of the most serious failure."""

    def __init__(self, message: str, exit_code: int, found: Result) -> None:
        super().__init__(message, found)
        self.exit_code = exit_code


def nightly(names: Sequence[str], options: Options, resume: Path | None, *, new: bool) -> Result:
    """Work through a night.

    Args:
        names: of tasks; or of one night's file.
        options: of the command line.
        resume: a night's folder, instead of names.
        new: begin another night where the same one was left unfinished.

    Raises:
        ConfigError: nothing that could be worked on.
        UnfitEnvironment: another night is running, or the folder cannot be written.
        NightNotDone: the night is over, or stopped, and not every task finished.
    """
    if resume is not None:
        if names or new or options != Options():
            raise ConfigError("nightly: --resume takes all from the night's own folder; give it alone")
        return _go_on(resume.resolve())
    asked = read_asked(names, options, _say)
    called = _names(asked)
    with only_night(asked.output):
        fingerprint = asked.fingerprint()
        left = None if new else _unfinished(asked.output, fingerprint)
        if left is not None:
            _say(f"{left.name} was left unfinished: going on with it (--new begins another)")
            return _work(left)
        folder = new_night_folder(asked.output)
        log = _open(folder)
        log.append(
            ev.NightStarted(
                key="night",
                night_id=folder.name,
                version=version("roofclimb"),
                asked=asked,
                fingerprint=fingerprint,
                names=called,
            )
        )
        log.close()
        make_durable(folder)
        return _work(folder)


def _go_on(folder: Path) -> Result:
    if not (folder / LOG).is_file():
        raise ConfigError(f"{folder}: not a night's folder ({LOG} is not there)")
    with only_night(folder.parent):
        return _work(folder)


def _work(folder: Path) -> Result:
    keep_secrets()
    stopped = threading.Event()
    log = _open(folder)
    try:
        if not log.all(ev.NightStarted):
            raise ConfigError(f"{folder}: the night was killed before it began; start it anew")
        with stop_on_signals(stopped):
            summary = Night(folder, log, stopped, _say).work()
    finally:
        log.close()
    return _result(summary)


def _result(summary: NightSummary) -> Result:
    result = (summary.model_dump(mode="json"), as_text(summary))
    if not summary.exit_code:
        return result
    resume = f"`python -m agent nightly --resume {summary.folder}`"
    if summary.exit_code == INTERRUPTED:
        raise NightNotDone(f"interrupted; {resume} goes on", INTERRUPTED, result)
    bad = [task for task in summary.tasks if task.exit_code not in (None, 0)]
    first = f"{bad[0].task}: {bad[0].reason}" + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else "")
    raise NightNotDone(f"{first}; {resume} tries again", summary.exit_code, result)


def _names(asked: Asked) -> tuple[str, ...]:
    """What the tasks are called. Raises ConfigError: not one of them can be read, so there is no night."""
    said: list[str | None] = []
    problems: list[ConfigError] = []
    for job in asked.jobs:
        try:
            said.append(job.load().task.name)
        except ConfigError as error:
            problems.append(error)
            said.append(None)
    if len(problems) == len(asked.jobs):
        raise problems[0]
    for problem in problems:
        _say(f"left for its turn, where it will fail: {problem}")
    return names_of(asked.jobs, said)


def _unfinished(output: Path, fingerprint: str) -> Path | None:
    """The folder of the same night, if one was begun here and not ended; of several the newest."""
    for log in sorted(output.glob(f"night_*/{LOG}"), reverse=True):
        try:
            events = read_log(log, NIGHT_EVENT, "night")[0]
        except ConfigError as error:
            _say(f"{error}: left alone")
            continue
        same = any(isinstance(e, ev.NightStarted) and e.fingerprint == fingerprint for e in events)
        if same and not any(isinstance(e, ev.NightEnded) for e in events):
            return log.parent
    return None


def _open(folder: Path) -> Log[NightEvent]:
    return Log(folder / LOG, NIGHT_EVENT, "night")


def _say(text: str) -> None:
    print(stamped(text), file=sys.stderr, flush=True)
