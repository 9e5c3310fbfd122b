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
from profiling.findings import Comparison, Evaluation, Timing

E = TypeVar("E", bound=Event)
_LONG_CELL = 36  # characters


@dataclass(frozen=True, slots=True)
class Table:
    """A table of ready texts. `numeric` columns are set flush right; a `folded` one is shown when asked for."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    title: str = ""
    folded: bool = False

    @property
    def has_long_texts(self) -> bool:
        """Whether some cell would fill a phone's width."""
        return any(is_long(cell) for row in self.rows for cell in row)


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
class Verdict:
    """What a reader came for.

    Attributes:
        headline: the one line to read.
        improved: whether the gain can be claimed; None when that is not known (yet).
        figure: what stands large: the gain that can be claimed, or that there is none.
        lead: what stands below it, where that is not the headline.
        grounds: what the figure rests on, in one line; "" where there is no figure.
    """

    headline: str
    improved: bool | None
    figure: str
    lead: str
    grounds: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason to believe the numbers, or not to. `good`: None where a person has to decide."""

    label: str
    value: str
    good: bool | None


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report.

    Attributes:
        title: the task.
        verdict: what a reader came for.
        about: where it ran, in one line.
        caution: what limits the claim (recorded answers, degraded evidence, a run that is not over).
        times: the times that the gain stands on, label and value.
        figures: other numbers of the top, likewise.
        findings: why the numbers can be believed, or not.
        sections: the rest.
    """

    title: str
    verdict: Verdict
    about: str
    caution: tuple[str, ...]
    times: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]


def is_long(cell: str) -> bool:
    """Whether a cell is a text to be wrapped, not a number or a name."""
    return len(cell) > _LONG_CELL


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


def attributions(events: Sequence[AnyEvent]) -> list[ev.Attributed]:
    """The table of each iteration; of one that was measured anew on another device, the newest."""
    return list({event.iteration: event for event in of_type(events, ev.Attributed)}.values())


def comparison_of(events: Sequence[AnyEvent], attributed: ev.Attributed) -> Comparison | Rejected | None:
    """The A/B of champion and best that an attribution table goes with."""
    name = f"iter{attributed.iteration}/champion"
    found = [e for e in of_type(events, ev.Compared) if name_of(e) == name and e.seq < attributed.seq]
    return found[-1].outcome if found else None


def headline(state: State, events: Sequence[AnyEvent]) -> tuple[str, bool | None]:
    """The one line, and whether a gain can be claimed."""
    found = verdict(state, events)
    return found.headline, found.improved


def verdict(state: State, events: Sequence[AnyEvent]) -> Verdict:
    """What came of the run.

    A gain counts when the lower end of its interval exceeds 1 by more than the larger of `noise` and the A/A spread.
    """
    threshold = max(state.noise, state.aa_spread or 0.0)
    final = final_comparison(events)
    if state.baseline_ms is None:
        return _unclaimed("Nothing yet", "The baseline has not been measured.", None)
    if isinstance(final, Rejected):
        return _unclaimed("No claim", f"No claim: the final comparison failed ({final.reason}).", None)
    if state.speedup is not None and state.speedup_interval is not None:
        text = fmt.speedup(state.speedup, *state.speedup_interval)
        grounds = _grounds(final) if final is not None else ""
        if state.speedup_interval[0] > 1 + threshold:
            figure, interval = fmt.speedup(state.speedup), text.partition(" ")[2]
            lead = f"as fast as the baseline, 95% interval {interval}"
            return Verdict(f"{text} as fast as the baseline.", True, figure, lead, grounds)
        why = f"noise {fmt.percent(state.noise)}, A/A spread {fmt.percent(state.aa_spread)}"
        bar = f"{fmt.speedup(1 + threshold)} ({why})"
        line = f"No significant improvement: {text} does not clear {bar}."
        return Verdict(line, False, "No gain", line, grounds)
    if state.best_from != "baseline":
        line = "A faster kernel was accepted, but it has not been compared with the baseline yet."
        return _unclaimed("No claim yet", line, None)
    if state.status == "finished":
        line = "No significant improvement: the baseline is still the best kernel."
        return _unclaimed("No gain", line, False)
    return _unclaimed("No gain yet", "No improvement yet: the baseline is still the best kernel.", None)


def _unclaimed(figure: str, line: str, improved: bool | None) -> Verdict:
    return Verdict(line, improved, figure, line)


def _grounds(final: Comparison) -> str:
    """What the headline's interval was made of."""
    pairs, blocks = len(final.log_ratios), sum(map(len, final.log_ratios))
    each = f", the gain by batches of {final.batch} calls" if final.batch > 1 else ""
    return f"Compared side by side at the end: {pairs} fresh pairs of processes, {blocks} blocks{each}"


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


def times(state: State, events: Sequence[AnyEvent]) -> tuple[tuple[str, str], ...]:
    """The gain and the times it stands on."""
    baseline_ms, best_ms = baseline_and_best_ms(state, events)
    found = last(events, ev.FloorFound)
    interval = state.speedup_interval or (None, None)
    return (
        ("speedup over baseline", fmt.speedup(state.speedup, *interval)),
        ("baseline", fmt.duration(baseline_ms)),
        ("reference", fmt.duration(state.reference_ms)),
        ("best", fmt.duration(best_ms)),
        ("floor", fmt.duration(found.floor_ms if found else None)),
    )


def figures(state: State, events: Sequence[AnyEvent]) -> tuple[tuple[str, str], ...]:
    """The other numbers of the top."""
    baseline_ms, best_ms = baseline_and_best_ms(state, events)
    checked, found = last(events, ev.TaskChecked), last(events, ev.FloorFound)
    flops = checked.work.flops if checked else None
    moved = checked.work.bytes if checked else None
    of_floor = found.floor_ms / best_ms if found and found.floor_ms and best_ms else None
    return (
        ("speedup over reference", fmt.speedup(state.speedup_over_reference)),
        ("best, share of the floor's speed", fmt.percent(of_floor)),
        ("best from", state.best_from),
        ("best rate", f"{fmt.rate(flops, best_ms, 'GFLOP/s')}, {fmt.rate(moved, best_ms, 'GB/s')}"),
        ("baseline rate", f"{fmt.rate(flops, baseline_ms, 'GFLOP/s')}, {fmt.rate(moved, baseline_ms, 'GB/s')}"),
        ("iterations", f"{len(state.iterations)}, {len(state.branches)} branches"),
        ("stopped by", (state.status == "finished" and state.stop_reason) or fmt.MISSING),
        ("working time", fmt.wall(state.elapsed_s)),
        ("cost", fmt.dollars(state.cost.usd)),
    )


def about(state: State, events: Sequence[AnyEvent]) -> str:
    """Where and when, in one line: `NVIDIA H200 · run_20261130_010000 · 2026-11-30 01:00 UTC`."""
    started, session = last(events, ev.RunStarted), last(events, ev.SessionStarted)
    machine = None
    if session is not None:
        gpu = session.environment.gpu
        machine = session.environment.device.name if gpu is None else gpu.name
    parts = (machine, state.run_id, fmt.minute(started.at) if started else None)
    return " · ".join(part for part in parts if part)
