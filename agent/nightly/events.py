"""What happened in a night, one class per kind, in `night.jsonl`. What its runs did stands in their own logs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from agent.events import Event
from agent.nightly.asked import Asked


class NightStarted(Event):
    """A night's folder was made. `names` are what its tasks are called, in the order of `asked.jobs`."""

    type: Literal["night_started"] = "night_started"
    night_id: str
    version: str
    asked: Asked
    fingerprint: str
    names: tuple[str, ...]


class NightOpened(Event):
    """A process began, or went on with, the night. `key` counts them from 0."""

    type: Literal["night_opened"] = "night_opened"
    pid: int


class RunPlaced(Event):
    """A task got its run folder, named from the night's folder. `key` is the task's number, from 0."""

    type: Literal["run_placed"] = "run_placed"
    folder: str


class Surveyed(Event):
    """A task was measured as it is. `key` is the task's number.

    Attributes:
        gap: 1 - floor/time of its baseline, 0-1; None where no floor is known.
        odds: the share of what was tried on its like that gained, by memory, 0-1.
        expected: what is to be hoped for, ln(speedup); None where `gap` is.
    """

    type: Literal["surveyed"] = "surveyed"
    gap: float | None
    odds: float
    expected: float | None


class Tried(Event):
    """A process worked on a task and ended. `key`: the task's number, `#` and which try.

    Attributes:
        task: its number.
        exit_code: as of a run; negative for the signal that killed it.
        reason: one line, "" where all is well.
    """

    type: Literal["tried"] = "tried"
    task: int
    exit_code: int
    reason: str


class NightPaused(Event):
    """A process left the night with something to be done: it was stopped, or a task waits for an answer."""

    type: Literal["night_paused"] = "night_paused"
    exit_code: int


class NightEnded(Event):
    """Nothing is left to be done."""

    type: Literal["night_ended"] = "night_ended"
    exit_code: int


class Told(Event):
    """`on_finish` was run. `problem`: why it failed, None where it did not."""

    type: Literal["told"] = "told"
    problem: str | None


NightEvent = Annotated[
    NightStarted | NightOpened | RunPlaced | Surveyed | Tried | NightPaused | NightEnded | Told,
    Field(discriminator="type"),
]
NIGHT_EVENT: TypeAdapter[NightEvent] = TypeAdapter(NightEvent)
