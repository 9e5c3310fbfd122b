"""`watch`: a run, or a night of them, seen from another terminal. It reads logs; the run does not know of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from agent.progress import PlainProgress, make_progress
from agent.report import fmt
from agent.watching.folder import LOG, find_all, newest_night, night_in_hand, night_is_on
from agent.watching.follow import Follower, held_files, is_held
from agent.watching.limits import read_limits
from agent.watching.nights import NIGHT_LOG, WAITING, Night, read_night
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
Result = tuple[Mapping[str, Any], str]


def watch(place: Path | None, wait_s: float) -> Result:
    """Show a run from its start until it ends, or all runs of a night.

    Args:
        place: a run's folder, a night's, or a folder of runs: the night that is on there, or the run being worked on,
            else the newest.
        wait_s: how long a run that stopped may take to be resumed.

    Raises:
        ConfigError: there is no run.
        RoofclimbError: the run stopped and was not resumed; the exit code is the run's. So with a night.
    """
    place = _named(place)
    try:
        if (place / LOG).is_file():
            return _watch_run(place.resolve(), wait_s)
        if (place / NIGHT_LOG).is_file():
            return _watch_night_of(place.resolve())
        if not place.is_dir():
            raise ConfigError(f"{place}: no such folder; name a run's folder, or the folder of the runs")
        if night_is_on(place, held_files()):
            return _watch_night(place)
        return _watch_run(_newest(place), wait_s)
    except KeyboardInterrupt:
        raise Interrupted("watched no longer; what was watched goes on without this") from None


def _named(place: Path | None) -> Path:
    if place is None:
        return Path("runs")
    return Path("runs") / place if place == Path("latest") and not place.exists() else place


def _newest(root: Path) -> Path:
    """The run being worked on, else the one that was worked on last."""
    runs = [found.path for found in find_all(root) if found.kind == "run"]
    held = held_files()
    working = [run for run in runs if is_held(run / LOG, held)]
    newest = max(working or runs, key=_last_write, default=None)
    if newest is None:
        raise ConfigError(f"{root}: holds no run; name a run's folder, or the folder of the runs")
    return newest.resolve()


def _last_write(run: Path) -> tuple[float, str]:
    try:
        return (run / LOG).stat().st_mtime, run.name
    except OSError:
        return 0.0, run.name


class _Watched:
    """One run, and its view on this terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.story = Story()
        self._follower = Follower(folder / LOG)
        self._generation = 0
        self._progress = self._make_progress()

    def _make_progress(self) -> LiveProgress | PlainProgress:
        limits = read_limits(self.folder)
        return make_progress(sys.stderr, limits.iterations or 0, limits.minutes, limits.usd)

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return isinstance(self.story.last, ev.RunEnded)

    def look(self) -> bool | None:
        """Show what is new; whether a process works on the run, as before that: by then it has written all it will."""
        held = is_held(self.folder / LOG, held_files())
        events = self._follower.poll()
        if self._follower.generation != self._generation:
            self._generation = self._follower.generation
            self._begin_anew()
        for event in events:
            self.story.take(event)
            self._progress(event)
        if events and isinstance(self._progress, LiveProgress):
            self._progress.age(events[-1].at)
        if self._follower.problem is not None:
            raise ConfigError(f"{self.folder}: {self._follower.problem}")
        return held

    def say(self, text: str, plain: str = "") -> None:
        """Why nothing goes on; "" once it does. A log is told `plain`, once."""
        if isinstance(self._progress, LiveProgress):
            self._progress.hold(text)
        elif plain:
            self._progress.activity(plain)

    def leave(self) -> None:
        """Take the view from the terminal; what was settled stays."""
        self._progress.close()

    def come_back(self) -> None:
        """Put the view back, after that of another run."""
        if isinstance(self._progress, LiveProgress):
            self._progress.open(f"{self.story.state.task}   {self.folder.name}")
        else:
            self._progress.activity(f"back to {self.folder.name} {self.story.state.task}")

    def _begin_anew(self) -> None:
        """The log was replaced or cut: what was shown no longer counts."""
        self._progress.close()
        self.story = Story()
        self._progress = self._make_progress()
        if isinstance(self._progress, PlainProgress):
            self._progress.activity("the log was replaced; from its start")


def _watch_run(folder: Path, wait_s: float) -> Result:
    watched = _Watched(folder)
    stopped_at: float | None = None
    try:
        while True:
            held = watched.look()
            if watched.ended:
                break
            if held is not False:
                if stopped_at is not None:
                    watched.say("")
                stopped_at = None
            else:
                stopped_at = time.monotonic() if stopped_at is None else stopped_at
                left = wait_s - (time.monotonic() - stopped_at)
                if left <= 0:
                    raise _stopped(watched)
                why = _why(watched.story)
                watched.say(f"{why}; waiting {fmt.wall(left)} for a resume", f"{why}; waiting for a resume")
            time.sleep(_POLL_S)
    finally:
        watched.leave()
    return _result(watched)


def _why(story: Story) -> str:
    return story.last.status if isinstance(story.last, ev.Paused) else "its process is gone"


def _watch_night_of(folder: Path) -> Result:
    """The night of this folder, which may be on."""
    root = folder.parent
    if night_is_on(root, held_files()) and _night_on(root) == folder.name:
        return _watch_night(root)
    return _night_result(root, read_night(folder.name, folder))


def _night_on(root: Path) -> str | None:
    """The night that is worked on. It is taken for the newest where that cannot be told."""
    newest = newest_night(root)
    return night_in_hand(root, held_files()) or (newest.name if newest is not None else None)


def _watch_night(root: Path) -> Result:
    """All runs of a night as they are worked on, which may be more than once each."""
    seen: dict[Path, _Watched] = {}
    now: _Watched | None = None
    night: str | None = None
    try:
        while True:
            on = night_is_on(root, held_files())
            night = night_in_hand(root, held_files()) or night
            if now is None or not now.look():
                other = _held_run(root)
                if other is not None and (now is None or other != now.folder):
                    if now is not None:
                        now.leave()
                    now = _enter(seen, other)
                elif now is not None:
                    now.say("" if other else "between two tasks", "between two tasks")
            else:
                now.say("")
            if not on:
                break
            time.sleep(_POLL_S)
    finally:
        if now is not None:
            now.leave()
    return _night_result(root, newest_night(root) if night is None else read_night(night, root / night))


def _enter(seen: dict[Path, _Watched], folder: Path) -> _Watched:
    if folder in seen:
        seen[folder].come_back()
    else:
        seen[folder] = _Watched(folder)
    return seen[folder]


def _held_run(root: Path) -> Path | None:
    held = held_files()
    working = [f.path for f in find_all(root) if f.kind == "run" and is_held(f.path / LOG, held)]
    return max(working, key=_last_write).resolve() if working else None


def _stopped(watched: _Watched) -> RoofclimbError:
    """The error that the run's own process ended with, as far as the log tells; a killed one is resumable."""
    folder, last = watched.folder, watched.story.last
    how = f"resume it with: python -m agent resume {folder}"
    if not isinstance(last, ev.Paused):
        return Interrupted(f"{folder.name}: no process works on it; {how}")
    return _error(last.exit_code, _BY_STATUS[last.status])(f"{folder.name} {last.status}: {last.reason}; {how}")


def _error(exit_code: int | None, otherwise: type[RoofclimbError]) -> type[RoofclimbError]:
    return next((kind for kind in _ERRORS if kind.exit_code == exit_code), otherwise)


def _result(watched: _Watched) -> Result:
    from agent.inspection import finished  # with all that a run needs: not before the first line is shown

    state = watched.story.state
    try:
        return finished(state, watched.folder)
    except ConfigError:  # events of another version were left out: what could be read stands
        return plain(state), f"{state.run_id}: {state.status}"


def _night_result(root: Path, night: Night | None) -> Result:
    """The night's own exit code; a night that was stopped goes on when it is started again."""
    if night is None or not night.ended_at:
        left_with = night.left_with if night is not None else None
        how = "waits for an answer" if left_with == WAITING else "stopped before its end"
        name = night.name if night is not None else root
        raise _error(left_with, Interrupted)(f"{name}: {how}; the same command goes on with it")
    page = root / night.name / "index.html"
    if night.exit_code:
        kind = _error(night.exit_code, RoofclimbError)
        raise kind(f"{night.name} ended with exit code {night.exit_code}; see {page}")
    return {"night": night.name, "exit_code": 0, "page": str(page)}, f"{night.name}: over; see {page}"
