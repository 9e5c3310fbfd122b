"""`watch`: a run, or a night of them, seen from another terminal. It reads logs; the run does not know of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from agent import events as ev
from agent.artefacts import plain
from agent.errors import (
    ConfigError,
    HarnessBroken,
    Interrupted,
    ModelUnusable,
    RoofclimbError,
    UnfitEnvironment,
    WaitingForAnswer,
)
from agent.events import AnyEvent
from agent.inspection import finished
from agent.progress import PlainProgress, Progress, make_progress
from agent.report import fmt
from agent.watching.folder import LOG, find_all, night_is_on
from agent.watching.follow import Follower, held_files, is_held
from agent.watching.limits import read_limits
from agent.watching.story import Story
from agent.watching.terminal import LiveProgress

_POLL_S = 0.2
_ERRORS: tuple[type[RoofclimbError], ...] = (
    ConfigError,
    UnfitEnvironment,
    ModelUnusable,
    HarnessBroken,
    WaitingForAnswer,
    Interrupted,
)
_BY_STATUS = {"interrupted": Interrupted, "waiting": WaitingForAnswer, "failed": HarnessBroken}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended for who watches: its folder and what was read of it."""

    folder: Path
    story: Story


def watch(place: Path | None, wait_s: float) -> tuple[Mapping[str, Any], str]:
    """Show a run from its start until it ends, or all runs of a night.

    Args:
        place: a run's folder, or a folder of runs: then the run being worked on, else the newest.
        wait_s: how long a run that stopped may take to be resumed.

    Raises:
        ConfigError: there is no run.
        RoofclimbError: the run stopped and was not resumed; the exit code is the run's.
    """
    root, folder = _resolve(place)
    seen: set[Path] = set()
    while True:
        seen.add(folder)
        ended = _Watch(folder, wait_s, sys.stderr).follow()
        following = _next_of_night(root, seen) if root is not None else None
        if following is None:
            return _result(ended)
        folder = following


def _resolve(place: Path | None) -> tuple[Path | None, Path]:
    """The folder of runs where that was named, and the run to begin with."""
    if place is None:
        place = Path("runs")
    elif place == Path("latest") and not place.exists():
        place = Path("runs") / "latest"
    if (place / LOG).is_file():
        return None, place.resolve()
    if not place.is_dir():
        raise ConfigError(f"{place}: no such folder; name a run's folder, or the folder of the runs")
    runs = [found.path for found in find_all(place) if found.kind == "run"]
    held = held_files()
    working = [run for run in runs if is_held(run / LOG, held)]
    newest = max(working or runs, key=_begun, default=None)
    if newest is None:
        raise ConfigError(f"{place}: holds no run; name a run's folder, or the folder of the runs")
    return place, newest.resolve()


def _begun(run: Path) -> tuple[float, str]:
    """When a run's log was last written, so that the newest comes last."""
    try:
        return (run / LOG).stat().st_mtime, run.name
    except OSError:
        return 0.0, run.name


def _next_of_night(root: Path, seen: set[Path]) -> Path | None:
    """The next run of a night that is on; None once the night is over."""
    while True:
        held = held_files()
        for found in find_all(root):
            if found.kind == "run" and found.path.resolve() not in seen and is_held(found.path / LOG, held):
                return found.path.resolve()
        if not night_is_on(root, held):
            return None
        time.sleep(_POLL_S)


class _Watch:
    """One run, followed to its end."""

    def __init__(self, folder: Path, wait_s: float, stream: TextIO) -> None:
        self._folder = folder
        self._wait_s = wait_s
        self._stream = stream
        self._follower = Follower(folder / LOG)
        self._story = Story()
        self._progress = self._open()

    def _open(self) -> Progress:
        limits = read_limits(self._folder)
        return make_progress(self._stream, limits.iterations or 0, limits.minutes, limits.usd)

    def follow(self) -> Ended:
        try:
            return self._follow()
        except KeyboardInterrupt:
            raise Interrupted(f"watched no longer; {self._folder.name} goes on without this") from None
        finally:
            self._progress.close()

    def _follow(self) -> Ended:
        stopped_at: float | None = None
        generation = self._follower.generation
        while True:
            events = self._follower.poll()
            if self._follower.generation != generation:
                generation = self._follower.generation
                self._begin_anew()
            for event in events:
                self._story.take(event)
                self._progress(event)
            if events and isinstance(self._progress, LiveProgress):
                self._progress.age(events[-1].at)
            if self._follower.problem is not None:
                raise ConfigError(f"{self._folder}: {self._follower.problem}")
            if isinstance(self._story.last, ev.RunEnded):
                return Ended(self._folder, self._story)
            # Looked up before what is new is read once more: a process that has just ended has written all by then.
            if is_held(self._folder / LOG, held_files()) is False:
                if stopped_at is None:
                    stopped_at = time.monotonic()
                elif not self._still_waiting(time.monotonic() - stopped_at):
                    raise _stopped(self._folder, self._story.last)
            elif stopped_at is not None:
                stopped_at = None
                self._say("")
            time.sleep(_POLL_S)

    def _still_waiting(self, stopped_s: float) -> bool:
        left = self._wait_s - stopped_s
        if left > 0:
            why = self._story.last.status if isinstance(self._story.last, ev.Paused) else "its process is gone"
            self._say(f"{why}; waiting {fmt.wall(left)} for a resume", plain=f"{why}; waiting for a resume")
        return left > 0

    def _say(self, text: str, plain: str = "") -> None:
        if isinstance(self._progress, LiveProgress):
            self._progress.hold(text)
        elif plain:
            self._progress.activity(plain)

    def _begin_anew(self) -> None:
        """The log was replaced or cut: what was shown no longer counts."""
        self._progress.close()
        self._story = Story()
        self._progress = self._open()
        if isinstance(self._progress, PlainProgress):
            self._progress.activity("the log was replaced; from its start")


def _stopped(folder: Path, last: AnyEvent | None) -> RoofclimbError:
    """The error that the run's own process ended with, as far as the log tells; a killed one is resumable."""
    how = f"resume it with: python -m agent resume {folder}"
    if not isinstance(last, ev.Paused):
        return Interrupted(f"{folder.name}: no process works on it; {how}")
    kind = next((k for k in _ERRORS if k.exit_code == last.exit_code), _BY_STATUS[last.status])
    return kind(f"{folder.name} {last.status}: {last.reason}; {how}")


def _result(ended: Ended) -> tuple[Mapping[str, Any], str]:
    state = ended.story.state
    try:
        return finished(state, ended.folder)
    except ConfigError:  # events of another version: what could be read stands
        return plain(state), json.dumps({"run": state.run_id, "status": state.status})
