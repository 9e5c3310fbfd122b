"""What a night came to, folded from its own log and those of its runs: page, JSON and `on_finish` say the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from agent.errors import ConfigError
from agent.journal import read_events
from agent.nightly import events as ev
from agent.nightly.events import NightEvent
from agent.report.view import headline
from agent.run_folder import is_run
from agent.state import State
from agent.state_fold import fold

Outcome = Literal[
    "faster", "no gain", "unclear", "failed", "waiting", "interrupted", "not reached", "working", "queued"
]
Status = Literal["running", "finished", "interrupted", "waiting"]

# The worst first: what the night's exit code is when several tasks failed.
SERIOUS = (5, 4, 3, 2, 75)
WAITING, INTERRUPTED = 75, 130


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskSummary(_Part):
    """One task. Times in ms; None: not known.

    Attributes:
        task: its name; config: its file.
        outcome: one word or two; reason: one line.
        exit_code: of its last try, None where there was none.
        speedup, low, high: of best over baseline, with its 95% interval.
        usd: None where a price is unknown; calls: of the model; elapsed_s: of work.
        gap, odds, expected: what the order was made by.
        run, report: folder and page, from the night's folder; None where there is none.
    """

    task: str
    config: str
    outcome: Outcome
    reason: str
    exit_code: int | None
    baseline_ms: float | None
    best_ms: float | None
    speedup: float | None
    low: float | None
    high: float | None
    usd: float | None
    calls: int
    elapsed_s: float
    gap: float | None
    odds: float | None
    expected: float | None
    run: str | None
    report: str | None


class NightSummary(_Part):
    """The whole night. `exit_code`: None while it runs. `as_of`: of its newest event. `sessions`: processes it took."""

    night: str
    folder: str
    version: str
    status: Status
    exit_code: int | None
    began: str
    as_of: str
    elapsed_s: float
    sessions: int
    usd: float | None
    usd_limit: float | None
    hours_limit: float | None
    told: str | None
    tasks: tuple[TaskSummary, ...]


def exit_code(codes: Sequence[int]) -> int:
    """The night's: 0 if every task that was reached finished, else that of the most serious failure."""
    failed = {_serious(code) for code in codes if code != 0}
    return next((code for code in SERIOUS if code in failed), 0)


def _serious(code: int) -> int:
    """A bug or a process that was killed is a fault of ours, as 5 is."""
    return code if code in SERIOUS else 5


def summarise(
    folder: Path,
    events: Sequence[NightEvent],
    order: Sequence[int],
    active: int | None = None,
    status: Status = "running",
    code: int | None = None,
) -> NightSummary:
    """The night as it stands.

    Args:
        folder: the night's.
        events: of its log.
        order: in which tasks are told.
        active: the task that is worked on now.
        status: of the night; code: its exit code, None while it runs.
    """
    (started,) = (e for e in events if isinstance(e, ev.NightStarted))
    told = [e for e in events if isinstance(e, ev.Told)]
    tasks = tuple(_task(folder, events, started, number, active, status) for number in order)
    prices = [task.usd for task in tasks]
    return NightSummary(
        night=started.night_id,
        folder=str(folder),
        version=started.version,
        status=status,
        exit_code=code,
        began=started.at,
        as_of=events[-1].at,
        elapsed_s=events[-1].elapsed_s,
        sessions=sum(isinstance(e, ev.NightOpened) for e in events),
        usd=None if None in prices else sum(usd for usd in prices if usd is not None),
        usd_limit=started.asked.budget.usd,
        hours_limit=started.asked.budget.hours,
        told=told[-1].problem if told else None,
        tasks=tasks,
    )


def run_state(folder: Path, placed: str | None) -> State | None:
    """What a run's log says; None where no run was begun, or its log cannot be read."""
    if placed is None or not is_run(folder / placed):
        return None
    try:
        return fold(read_events(folder / placed / "events.jsonl")[0])
    except ConfigError:
        return None


def _task(
    folder: Path,
    events: Sequence[NightEvent],
    started: ev.NightStarted,
    number: int,
    active: int | None,
    status: Status,
) -> TaskSummary:
    placed = next((e.folder for e in events if isinstance(e, ev.RunPlaced) and e.key == str(number)), None)
    looked = next((e for e in events if isinstance(e, ev.Surveyed) and e.key == str(number)), None)
    tried = [e for e in events if isinstance(e, ev.Tried) and e.task == number]
    state = run_state(folder, placed)
    last = tried[-1] if tried else None
    outcome, reason = _outcome(folder, placed, state, last, number == active, status)
    low, high = (None, None) if state is None or state.speedup_interval is None else state.speedup_interval
    report = f"{placed}/report.html" if placed and (folder / placed / "report.html").is_file() else None
    return TaskSummary(
        task=started.names[number],
        config=str(started.asked.jobs[number].config),
        outcome=outcome,
        reason=reason,
        exit_code=None if last is None else last.exit_code,
        baseline_ms=None if state is None else state.baseline_ms,
        best_ms=None if state is None else state.best_ms,
        speedup=None if state is None else state.speedup,
        low=low,
        high=high,
        usd=0.0 if state is None else state.cost.usd,
        calls=0 if state is None else state.cost.calls,
        elapsed_s=0.0 if state is None else state.elapsed_s,
        gap=None if looked is None else looked.gap,
        odds=None if looked is None else looked.odds,
        expected=None if looked is None else looked.expected,
        run=None if state is None else placed,
        report=report,
    )


def _outcome(
    folder: Path, placed: str | None, state: State | None, last: ev.Tried | None, active: bool, status: Status
) -> tuple[Outcome, str]:
    if state is not None and placed is not None and state.status == "finished":
        line, improved = headline(state, read_events(folder / placed / "events.jsonl")[0])
        return ("unclear" if improved is None else "faster" if improved else "no gain"), line
    if active:
        return "working", ""
    if last is None or last.exit_code == 0:
        if status in ("finished", "waiting"):
            return "not reached", "the night's budget was used up before its turn"
        return "queued", "" if state is None else "measured as it is; its turn comes"
    if last.exit_code == WAITING:
        return "waiting", last.reason
    return "interrupted" if last.exit_code == INTERRUPTED else "failed", last.reason
