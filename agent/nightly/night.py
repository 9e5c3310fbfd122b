"""A night: survey every task, then make each faster, the most hopeful first, whatever becomes of the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from agent.errors import UnfitEnvironment
from agent.log import Log
from agent.nightly import events as ev
from agent.nightly.asked import Asked, Job
from agent.nightly.child import Order
from agent.nightly.events import NightEvent
from agent.nightly.page import write_pages
from agent.nightly.process import Child, Ended, run_child
from agent.nightly.summary import (
    INTERRUPTED,
    WAITING,
    NightSummary,
    Status,
    exit_code,
    run_state,
    summarise,
)
from agent.nightly.survey import Survey, by_expected_gain
from agent.nightly.telling import tell
from agent.paths import make_latest, new_run_folder
from agent.report import fmt
from agent.run_folder import is_run
from agent.state import State

# A second try, after all others, would end the same way: finished, a config that is wrong, an answer to wait for.
_SETTLED = (0, 2, WAITING)


@dataclass(slots=True)
class Night:
    """One night in hand. `folder` is its own; its runs lie beside it."""

    folder: Path
    log: Log[NightEvent]
    stopped: threading.Event
    say: Callable[[str], None]
    child: Child = run_child
    _codes: dict[int, int] = field(default_factory=dict)
    _active: int | None = None

    @property
    def asked(self) -> Asked:
        """What it was asked to do."""
        return self._started.asked

    @property
    def _started(self) -> ev.NightStarted:
        return self.log.all(ev.NightStarted)[0]

    def work(self) -> NightSummary:
        """Do what is left to be done; the night's exit code stands in the summary.

        Raises:
            UnfitEnvironment: the night's log cannot be written; it can be resumed.
        """
        left = [number for number in range(len(self.asked.jobs)) if not self._finished(number)]
        if left or not self.log.all(ev.NightEnded):
            self.log.append(ev.NightOpened(key=str(len(self.log.all(ev.NightOpened))), pid=os.getpid()))
        self.say(
            f"{self.folder.name}: {len(left)} of {len(self.asked.jobs)} to do; its page: {self.folder / 'index.html'}"
        )
        if len(left) > 1:
            for number in left:
                self._survey(number)
        order = self._ordered(left)
        for number in order:
            if number not in self._codes:
                self._search(number)
        for number in order:  # what failed once may have met a busy machine, or a provider that is up again by now
            if self._codes.get(number) not in _SETTLED:
                self._search(number)
        return self._end(worked=bool(left))

    def _survey(self, number: int) -> None:
        """Measure a task as it is, if that was not done before."""
        if self.log.find(ev.Surveyed, str(number)) is not None or not self._may_go_on():
            return
        self.say(f"{self._name(number)}: measured as it is")
        ended = self._child(number, survey=True)
        if ended.code != 0:
            self._tried(number, ended)
        elif ended.said:
            found = Survey.model_validate(ended.said)
            self.log.append(ev.Surveyed(key=str(number), **found.model_dump()))

    def _search(self, number: int) -> None:
        """Take a task to its end."""
        if not self._may_go_on():
            return
        before = self._codes.get(number)
        self.say(f"{self._name(number)}: {'once more' if before is not None else 'begins'}")
        self._tried(number, self._child(number, survey=False))

    def _tried(self, number: int, ended: Ended) -> None:
        self._codes[number] = ended.code
        tries = sum(e.task == number for e in self.log.all(ev.Tried))
        event = ev.Tried(key=f"{number}#{tries}", task=number, exit_code=ended.code, reason=ended.reason)
        self.log.append(event)
        if ended.code != 0:
            self.say(f"{self._name(number)}: ended with {ended.code}: {ended.reason}")
        self._write("running", None)

    def _child(self, number: int, *, survey: bool) -> Ended:
        """A process that works on a task until it ends, or until the night is stopped."""
        folder = self.folder / self._placed(number)
        if not is_run(folder) and self.log.find(ev.Surveyed, str(number)) is not None:
            self.say(f"{self._name(number)}: its run folder {folder.name} is gone, so it begins anew")
        make_latest(folder)  # for whoever wants to watch
        self._active = number
        self._write("running", None)
        usd, minutes = self._left()
        order = Order(
            job=self.asked.jobs[number],
            folder=folder.resolve(),
            survey=survey,
            usd=usd,
            minutes=minutes,
            parent=os.getpid(),
        )
        try:
            return self.child(order, self.stopped.is_set)
        finally:
            self._active = None

    def _placed(self, number: int) -> str:
        def place() -> ev.RunPlaced:
            run = new_run_folder(self.folder.parent)
            return ev.RunPlaced(key=str(number), folder=f"../{run.name}")

        return self.log.once(ev.RunPlaced, str(number), place).folder

    def _end(self, *, worked: bool) -> NightSummary:
        if self.stopped.is_set():
            return self._paused("interrupted", INTERRUPTED)
        tries = self.log.all(ev.Tried)
        last = {e.task: e.exit_code for e in tries}
        codes = [0 if self._finished(n) else last.get(n, 0) for n in range(len(self.asked.jobs))]
        code = exit_code(codes)
        status: Status = "waiting" if WAITING in codes else "finished"
        ends = self.log.all(ev.NightEnded)
        if status == "finished" and (worked or not ends):
            self.log.append(ev.NightEnded(key=str(len(ends)), exit_code=code))
        summary = self._paused(status, code) if status == "waiting" else self._write(status, code)
        if self._tell(summary, worked=worked):
            summary = self._write(status, code)
        return summary

    def _paused(self, status: Status, code: int) -> NightSummary:
        self.log.append(ev.NightPaused(key=str(len(self.log.all(ev.NightPaused))), exit_code=code))
        return self._write(status, code)

    def _tell(self, summary: NightSummary, *, worked: bool) -> bool:
        """Run `on_finish`, unless that was done: what is told is told once, and lost by no kill."""
        ends, told = self.log.all(ev.NightEnded), self.log.all(ev.Told)
        done = bool(ends and told) and told[-1].seq > ends[-1].seq
        if self.asked.on_finish is None or (done and not worked):
            return False
        problem = tell(self.asked.on_finish, self.asked.on_finish_timeout_s, summary)
        if problem is not None:
            self.say(problem)
        self.log.append(ev.Told(key=str(len(told)), problem=problem))
        return True

    def _may_go_on(self) -> bool:
        """Whether nobody said stop, and something of the night's budget is left."""
        usd, minutes = self._left()
        return not self.stopped.is_set() and (usd is None or usd > 0) and (minutes is None or minutes > 0)

    def _left(self) -> tuple[float | None, float | None]:
        """Dollars and minutes of the night that are left. What is not known to have cost anything counts as nothing."""
        budget = self.asked.budget
        states = [self._state(number) for number in range(len(self.asked.jobs))]
        spent = sum(state.cost.usd or 0.0 for state in states if state is not None)
        usd = None if budget.usd is None else max(0.0, budget.usd - spent)
        minutes = None if budget.hours is None else max(0.0, 60 * budget.hours - self.log.elapsed_s / 60)
        return usd, minutes

    def _state(self, number: int) -> State | None:
        placed = self.log.find(ev.RunPlaced, str(number))
        return run_state(self.folder, None if placed is None else placed.folder)

    def _finished(self, number: int) -> bool:
        state = self._state(number)
        return state is not None and state.status == "finished"

    def _ordered(self, numbers: Sequence[int]) -> list[int]:
        return by_expected_gain(numbers, {int(e.key): e.expected for e in self.log.all(ev.Surveyed)})

    def _name(self, number: int) -> str:
        return f"task {number + 1} of {len(self.asked.jobs)}, {self._started.names[number]}"

    def _write(self, status: Status, code: int | None) -> NightSummary:
        """The pages as of now; a folder that is full must not end the night, whose log says so soon enough."""
        order = self._ordered(range(len(self.asked.jobs)))
        summary = summarise(self.folder, self.log.events, order, self._active, status, code)
        try:
            write_pages(summary, self.folder)
        except UnfitEnvironment as error:
            self.say(str(error))
        return summary


def names_of(jobs: Sequence[Job], said: Sequence[str | None]) -> tuple[str, ...]:
    """What tasks are called: by their name in the file, else by the file's; two of a name by both."""
    names = [name or job.config.stem for job, name in zip(jobs, said, strict=True)]
    return tuple(
        f"{name} ({job.config.stem})" if names.count(name) > 1 else name for job, name in zip(jobs, names, strict=True)
    )


def stamped(text: str) -> str:
    """A line of the night's own, as a run writes its lines."""
    return f"{fmt.instant(datetime.now(timezone.utc).isoformat())} {fmt.one_line(text)}"
