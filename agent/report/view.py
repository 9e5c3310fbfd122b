"""What a report says, before it is Markdown or HTML: both are drawn from the same `Report`, so they cannot disagree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent import events as ev
from agent.events import AnyEvent, Event
from agent.report import fmt
from agent.state import State
from backends.types import Rejected
from profiling.types import Comparison, Evaluation, Timing

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of ready texts. `numeric` columns are set flush right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Listing:
    """A titled block of fixed-width text."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report; `anchor` names it in links and says where its chart goes."""

    anchor: str
    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    bullets: tuple[str, ...] = ()
    listings: tuple[Listing, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to say."""
        return not (self.lines or self.bullets or self.listings or any(table.rows for table in self.tables))


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report.

    Attributes:
        title: the task.
        headline: the one line to read.
        improved: whether the gain can be claimed; None when that is not known (yet).
        caution: what limits the claim (recorded answers, degraded evidence, a run that is not over).
        figures: the few numbers of the top, label and value.
        sections: the rest.
    """

    title: str
    headline: str
    improved: bool | None
    caution: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]


def of_type(events: Iterable[AnyEvent], kind: type[E]) -> list[E]:
    """The events of one type, in order."""
    return [e for e in events if isinstance(e, kind)]


def last(events: Sequence[AnyEvent], kind: type[E]) -> E | None:
    """The newest event of one type."""
    found = of_type(events, kind)
    return found[-1] if found else None


def name_of(event: ev.Compared) -> str:
    """Which comparison: its key without the mark of a later device (`final@1`)."""
    return event.key.partition("@")[0]


def final_comparison(events: Sequence[AnyEvent]) -> Comparison | Rejected | None:
    """The fresh A/B of best against baseline that the headline rests on."""
    return next((e.outcome for e in reversed(of_type(events, ev.Compared)) if name_of(e) == "final"), None)


def baseline_timing(events: Sequence[AnyEvent]) -> Timing | None:
    """How the baseline was timed, on the newest device."""
    timed = [e.outcome for e in of_type(events, ev.Evaluated) if e.branch == "baseline"]
    return timed[-1].timing if timed and isinstance(timed[-1], Evaluation) else None


def baseline_and_best_ms(state: State, events: Sequence[AnyEvent]) -> tuple[float | None, float | None]:
    """Times from the final A/B where there is one (measured side by side), else each kernel's own."""
    final = final_comparison(events)
    if isinstance(final, Comparison):
        return final.a_ms, final.b_ms
    return state.baseline_ms, state.best_ms


def headline(state: State, events: Sequence[AnyEvent]) -> tuple[str, bool | None]:
    """The one line, and whether a gain can be claimed.

    A gain counts when the lower end of its interval exceeds 1 by more than the larger of `noise` and the A/A spread.
    """
    threshold = max(state.noise, state.aa_spread or 0.0)
    final = final_comparison(events)
    if state.baseline_ms is None:
        return "The baseline has not been measured.", None
    if isinstance(final, Rejected):
        return f"No claim: the final comparison failed ({final.reason}).", None
    if state.speedup is not None and state.speedup_interval is not None:
        text = fmt.speedup(state.speedup, *state.speedup_interval)
        if state.speedup_interval[0] > 1 + threshold:
            return f"{text} as fast as the baseline.", True
        why = f"noise {fmt.percent(state.noise)}, A/A spread {fmt.percent(state.aa_spread)}"
        bar = f"{fmt.speedup(1 + threshold)} ({why})"
        return f"No significant improvement: {text} does not clear {bar}.", False
    if state.best_from != "baseline":
        return "A faster kernel was accepted, but it has not been compared with the baseline yet.", None
    if state.status == "finished":
        return "No significant improvement: the baseline is still the best kernel.", False
    return "No improvement yet: the baseline is still the best kernel.", None


def cautions(state: State, events: Sequence[AnyEvent]) -> tuple[str, ...]:
    """What a reader must know before believing the headline."""
    found = []
    if state.status != "finished":
        why = f": {state.stop_reason}" if state.stop_reason else ""
        found.append(f"The run is not over ({state.status}{why}).")
    started = last(events, ev.RunStarted)
    if started is not None and started.provider == "replay":
        found.append("The model's answers were recorded; builds, checks and times are of this machine.")
    if state.degraded is not None:
        found.append(f"Profiles are degraded: {state.degraded}")
    if len({s.device_id for s in of_type(events, ev.SessionStarted)}) > 1:
        found.append("The run went on on another device; the headline was measured on the last one.")
    timing = baseline_timing(events)
    if timing is not None and timing.l2 == "hot":
        found.append("Times are with warm caches (`l2: hot`).")
    return tuple(found)


def figures(state: State, events: Sequence[AnyEvent]) -> tuple[tuple[str, str], ...]:
    """The numbers of the top."""
    baseline_ms, best_ms = baseline_and_best_ms(state, events)
    checked, found = last(events, ev.TaskChecked), last(events, ev.FloorFound)
    flops = checked.work.flops if checked else None
    moved = checked.work.bytes if checked else None
    floor_ms = found.floor_ms if found else None
    of_floor = floor_ms / best_ms if floor_ms and best_ms else None
    interval = state.speedup_interval or (None, None)
    return (
        ("speedup over baseline", fmt.speedup(state.speedup, *interval)),
        ("speedup over reference", fmt.speedup(state.speedup_over_reference)),
        ("baseline", fmt.duration(baseline_ms)),
        ("best", f"{fmt.duration(best_ms)} ({state.best_from})" if best_ms else fmt.MISSING),
        ("reference", fmt.duration(state.reference_ms)),
        ("floor", fmt.duration(floor_ms)),
        ("best, share of the floor's speed", fmt.percent(of_floor)),
        ("baseline rate", f"{fmt.rate(flops, baseline_ms, 'GFLOP/s')}, {fmt.rate(moved, baseline_ms, 'GB/s')}"),
        ("best rate", f"{fmt.rate(flops, best_ms, 'GFLOP/s')}, {fmt.rate(moved, best_ms, 'GB/s')}"),
        ("iterations", str(len(state.iterations))),
        ("stopped by", (state.status == "finished" and state.stop_reason) or fmt.MISSING),
        ("working time", fmt.wall(state.elapsed_s)),
        ("cost", fmt.dollars(state.cost.usd)),
    )
