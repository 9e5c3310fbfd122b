"""All runs and nights of a folder, kept up to date by reading what is new in their logs.

A run's events are read once and folded; what a page needs of them is kept, the rest is forgotten.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent import events as ev
from agent.events import AnyEvent
from agent.report.view import headline, name_of
from agent.state import State
from agent.watching.branch_steps import BranchSteps
from agent.watching.doing import doing_now
from agent.watching.folder import LOG, Found, find_all, night_in_hand, night_is_on
from agent.watching.follow import Follower, held_files, is_held
from agent.watching.limits import Limits, read_limits
from agent.watching.nights import WAITING, Night, read_night
from agent.watching.story import Line, Story

Condition = Literal["running", "finished", "interrupted", "waiting", "failed", "stopped", "empty", "damaged"]
_FRESH_S = 0.4  # what was looked up this recently is not looked up again
_FILES = ("report.html", "summary.md")
_KEPT = (ev.RunStarted, ev.SessionStarted, ev.TaskChecked, ev.FloorFound)


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as a page shows it.

    Attributes:
        name: its path from the folder of runs.
        condition: how it stands; `stopped` has no process and no end, `damaged` a log that cannot be read on.
        problem: what is wrong with the folder, None where nothing is.
        headline: the one line to read, and `improved` whether it claims a gain.
        stage: what is being done now, "" where nothing is.
        stage_at: since when, UTC.
    """

    name: str
    path: Path
    condition: Condition
    problem: str | None
    started: ev.RunStarted | None
    device: str | None
    branches: tuple[BranchSteps, ...]
    state: State
    lines: tuple[Line, ...]
    limits: Limits
    headline: str
    improved: bool | None
    stage: str
    began_at: str
    stage_at: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NightView:
    """One night, and whether a process works on it."""

    night: Night
    condition: Condition


class _Tracked:
    """One run's log, followed."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._log = found.path / LOG
        self._follower = Follower(self._log)
        self._generation = 0
        self._reset()
        self.view: RunView | None = None

    def _reset(self) -> None:
        self._story = Story()
        self._lines: list[Line] = []
        self._kept: list[AnyEvent] = []
        self._limits: Limits | None = None
        self._misfit: str | None = None

    def refresh(self, held: Collection[int] | None) -> bool:
        """Read what is new; whether anything changed."""
        events = self._follower.poll() if self.found.kind == "run" else []
        if self._follower.generation != self._generation:
            self._generation = self._follower.generation
            self._reset()
        for event in events:
            self._take(event)
        condition, problem = self._condition(is_held(self._log, held))
        files = tuple(name for name in _FILES if os.path.isfile(f"{self.found.path}/{name}"))
        seen = self.view
        if (
            seen is not None
            and not events
            and (seen.condition, seen.problem, seen.files) == (condition, problem, files)
        ):
            return False
        self.view = self._view(condition, problem, files)
        return True

    def _take(self, event: AnyEvent) -> None:
        try:
            self._lines += self._story.take(event)
        except Exception as bug:  # events that do not fit together: this run cannot be shown, all others can
            self._misfit = f"event {event.seq} ({event.type}) does not fit those before it: {type(bug).__name__}"
        if isinstance(event, _KEPT) or (isinstance(event, ev.Compared) and name_of(event) == "final"):
            self._kept.append(event)

    def _condition(self, alive: bool | None) -> tuple[Condition, str | None]:
        if self.found.kind != "run":
            return "empty", "no events.jsonl: the run never began, or its folder was cut down"
        if self._follower.problem or self._misfit:
            return "damaged", self._follower.problem or self._misfit
        skipped = self._follower.skipped
        unread = f"{skipped} events are of another version and were left out" if skipped else None
        if self._story.last is None:
            return ("running", None) if alive else ("empty", unread or "events.jsonl is empty")
        status = self._story.state.status
        if status == "finished":
            return "finished", unread
        # Held again, a run that had paused is being resumed; where nobody can tell, its log is believed.
        if alive or (alive is None and status == "running"):
            return "running", unread
        return ("stopped" if status == "running" else status), unread

    def _view(self, condition: Condition, problem: str | None, files: tuple[str, ...]) -> RunView:
        path, state = self.found.path, self._story.state
        if self._limits is None:
            self._limits = read_limits(path)
        line, improved = headline(state, self._kept) if self._story.started else ("Nothing was logged yet.", None)
        running = condition == "running"
        stage = doing_now(self._story, self._limits.iterations) if running else ""
        last = self._story.last
        return RunView(
            name=self.found.name,
            path=path,
            condition=condition,
            problem=problem,
            started=self._story.started,
            device=self._story.device,
            branches=self._story.branches,
            state=state,
            lines=tuple(self._lines),
            limits=self._limits,
            headline=line,
            improved=improved,
            stage=stage,
            began_at=self._story.started.at if self._story.started else "",
            stage_at=last.at if last else "",
            files=files,
        )


class Catalog:
    """Runs and nights beneath `root`. Any thread may ask; `version` goes up when anything changed."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self.version = 0
        self.nights: tuple[NightView, ...] = ()
        self._tracked: dict[str, _Tracked] = {}
        self._lock = threading.Lock()
        self._clock = clock
        self._looked = float("-inf")

    def refresh(self) -> None:
        """Look what is new, unless that was done a moment ago."""
        with self._lock:
            if self._clock() - self._looked < _FRESH_S:
                return
            held = held_files()
            found = find_all(self.root)
            changed = self._track([f for f in found if f.kind != "night"])
            for tracked in self._tracked.values():
                changed |= tracked.refresh(held)
            nights = self._nights([f for f in found if f.kind == "night"], held)
            changed |= nights != self.nights
            self.nights = nights
            self.version += changed
            self._looked = self._clock()

    def _nights(self, found: list[Found], held: Collection[int] | None) -> tuple[NightView, ...]:
        """All nights, the newest first. One at most is on: there is one lock."""
        nights = [read_night(f.name, f.path) for f in found]
        nights.sort(key=lambda night: (night.began_at, night.name), reverse=True)
        on = None
        if nights and night_is_on(self.root, held):
            on = night_in_hand(self.root, held) or nights[0].name
        return tuple(NightView(night, _condition_of(night, on=night.name == on)) for night in nights)

    def _track(self, found: list[Found]) -> bool:
        """Begin to follow what is new, and forget what is gone."""
        wanted = {f.name: f for f in found}
        gone = [name for name, known in self._tracked.items() if wanted.get(name) != known.found]
        for name in gone:
            del self._tracked[name]
        new = [f for name, f in wanted.items() if name not in self._tracked]
        self._tracked |= {f.name: _Tracked(f) for f in new}
        return bool(gone or new)

    def runs(self) -> list[RunView]:
        """All runs, the newest first."""
        views = [tracked.view for tracked in list(self._tracked.values()) if tracked.view is not None]
        return sorted(views, key=lambda v: (v.began_at or "", v.name), reverse=True)

    def run(self, name: str) -> RunView | None:
        """One run by its name."""
        tracked = self._tracked.get(name)
        return tracked.view if tracked is not None else None


def _condition_of(night: Night, *, on: bool) -> Condition:
    if night.ended_at:
        return "finished"
    return "running" if on else "waiting" if night.left_with == WAITING else "stopped"
