"""How far each branch of the running iteration is: asked, built, verified, timed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent import events as ev
from agent.events import AnyEvent
from agent.state import BranchState, State
from backends.types import Rejected, Stage

Mark = Literal["open", "busy", "good", "bad", "unsure"]
Marks = tuple[Mark, ...]
STEPS = ("asked", "built", "verified", "timed")
_FELL_AT: Mapping[Stage, int] = {
    "answer": 0,
    "duplicate": 0,
    "signature": 1,
    "build": 1,
    "load": 1,
    "verify": 2,
    "time": 3,
}
_VERDICTS: Mapping[str, Marks] = {
    "pass": ("good", "good", "good", "good"),
    "suspect": ("good", "good", "good", "unsure"),
    "unverified": ("good", "good", "unsure", "good"),
}
_REQUEST = re.compile(r"iter\d+-(branch|repair)-(.+)-\d+")


@dataclass(frozen=True, slots=True)
class BranchSteps:
    """One branch.

    Attributes:
        name: `b0`.
        variant: what the plan wants of it.
        marks: one for each of `STEPS`.
        doing: the word for where it stands: `waiting`, `asking`, `written`, `building`, `timing`, or its verdict.
        state: what is known of it, None before it was written.
    """

    name: str
    variant: str
    marks: Marks
    doing: str
    state: BranchState | None


@dataclass(slots=True)
class BranchTracker:
    """Takes the events of one iteration after the other."""

    iteration: int = 0
    variants: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    built: set[str] = field(default_factory=set)
    fell: dict[str, Stage] = field(default_factory=dict)

    def take(self, event: AnyEvent) -> None:
        """Learn from an event."""
        iteration = getattr(event, "iteration", 0)
        if iteration > self.iteration:
            self.iteration = iteration
            self.variants, self.fell = {}, {}
            self.asked, self.written, self.built = set(), set(), set()
        if isinstance(event, ev.PlanDecided) and event.plan is not None:
            self.variants = {b.name: b.variant for b in event.plan.branches}
        elif isinstance(event, ev.RequestSent):
            named = _REQUEST.fullmatch(event.key)
            if named is not None:
                self.asked.add(named[2])
        elif isinstance(event, ev.BranchWritten):
            self.asked.discard(event.branch)
            self.written.add(event.branch)
            self.built.discard(event.branch)
            self._fall(event.branch, event.rejected)
        elif isinstance(event, ev.Evaluated) and event.iteration:
            self.built |= self.written  # builds come first, also in a log that does not tell of them
            self._fall(event.branch, event.outcome if isinstance(event.outcome, Rejected) else None)
        elif isinstance(event, ev.BranchesBuilt):
            self.built.update(event.seconds)
        elif isinstance(event, ev.SessionStarted):
            self.asked.clear()  # what was in flight died with its session

    def _fall(self, branch: str, rejected: Rejected | None) -> None:
        self.fell.pop(branch, None)
        if rejected is not None:
            self.fell[branch] = rejected.stage

    def steps(self, state: State) -> tuple[BranchSteps, ...]:
        """Every branch of the iteration, those of the plan first."""
        known = {b.name: b for b in state.branches if b.iteration == self.iteration}
        names = list(dict.fromkeys([*self.variants, *known]))
        return tuple(self._steps(name, known.get(name)) for name in names)

    def _steps(self, name: str, state: BranchState | None) -> BranchSteps:
        marks, doing = self._standing(name, state)
        return BranchSteps(name, self.variants.get(name, ""), marks, doing, state)

    def _standing(self, name: str, state: BranchState | None) -> tuple[Marks, str]:
        if name in self.asked:
            return ("busy", "open", "open", "open"), "asking" if state is None else f"repair {state.repairs + 1}"
        if state is None:
            return ("open", "open", "open", "open"), "waiting"
        if state.status == "written" and self.asked:  # built with the others, once they are all there
            return ("good", "open", "open", "open"), "written"
        if state.status == "written":
            built = name in self.built
            return ("good", "good", "busy", "open") if built else ("good", "busy", "open", "open"), (
                "timing" if built else "building"
            )
        return _ended(state, self.fell.get(name)), state.status


def _ended(state: BranchState, fell: Stage | None) -> Marks:
    if fell is not None:
        at = _FELL_AT[fell]
        return tuple("good" if i < at else "bad" if i == at else "open" for i in range(len(STEPS)))
    return _VERDICTS.get(state.status, ("good", "good", "bad", "open"))
