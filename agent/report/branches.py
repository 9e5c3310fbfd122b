"""What became of each branch, one by one: what it was to be, how it was judged, and its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.view import of_type
from agent.state import BranchState, State
from profiling.findings import Evaluation, Timing


@dataclass(frozen=True, slots=True)
class BranchDetail:
    """One branch.

    Attributes:
        anchor: where links lead.
        name: `b2`, with its iteration before it.
        variant: how it was to differ from its siblings.
        status: its verdict.
        champion: whether it was its iteration's champion.
        time, over_baseline: ready to read.
        facts: label and value.
        source: the newest text of it, None where none came.
    """

    anchor: str
    name: str
    variant: str
    status: str
    champion: bool
    time: str
    over_baseline: str
    facts: tuple[tuple[str, str], ...]
    source: str | None


def branch_details(state: State, events: Sequence[AnyEvent]) -> tuple[BranchDetail, ...]:
    """Every branch, in order."""
    return tuple(_detail(branch, state, events) for branch in state.branches)


def over_baseline(branch: BranchState, state: State) -> str:
    """Its speedup over the baseline; a suspect time is shown, but it is no speedup."""
    known = branch.status == "pass" and state.baseline_ms and branch.median_ms
    return fmt.speedup(
        state.baseline_ms / branch.median_ms if known and state.baseline_ms and branch.median_ms else None
    )


def gap(branch: BranchState) -> str:
    """How far it is behind its champion."""
    if branch.gap is None:
        return fmt.MISSING
    return f"+{fmt.percent(branch.gap)}" if branch.gap > 0 else fmt.percent(branch.gap)


def _detail(branch: BranchState, state: State, events: Sequence[AnyEvent]) -> BranchDetail:
    written = [e for e in of_type(events, ev.BranchWritten) if _is_of(e, branch)]
    judged = [e for e in of_type(events, ev.Evaluated) if _is_of(e, branch)]
    plans = [e.plan for e in of_type(events, ev.PlanDecided) if e.iteration == branch.iteration and e.plan]
    outcome = judged[-1].outcome if judged else None
    timing = outcome.timing if isinstance(outcome, Evaluation) else None
    facts = [
        ("reason", branch.reason or fmt.MISSING),
        ("over baseline", over_baseline(branch, state)),
        ("behind its champion", gap(branch)),
        ("model", branch.model or fmt.MISSING),
        ("repairs", str(branch.repairs)),
        ("build", fmt.MISSING if not judged or judged[-1].build_s is None else f"{judged[-1].build_s:.1f} s"),
        ("checks", _checks(outcome) if isinstance(outcome, Evaluation) else fmt.MISSING),
        ("timing", _timing(timing) if timing else fmt.MISSING),
    ]
    sources = [e.source for e in written if e.source is not None]
    return BranchDetail(
        anchor=f"iter{branch.iteration}-{branch.name}",
        name=branch.name,
        variant=plans[-1].variant(branch.name) if plans else "",
        status=branch.status,
        champion=branch.champion,
        time=fmt.duration(branch.median_ms),
        over_baseline=over_baseline(branch, state),
        facts=tuple(facts),
        source=sources[-1] if sources else None,
    )


def _is_of(event: ev.BranchWritten | ev.Evaluated, branch: BranchState) -> bool:
    return (event.iteration, event.branch) == (branch.iteration, branch.name)


def _checks(outcome: Evaluation) -> str:
    """`41 of 41 calls right at 7 shapes; largest error 1.2e-05`."""
    right = sum(check.passed for check in outcome.checks)
    shapes = len({tuple(check.dims.items()) for check in outcome.checks})
    errors = [check.max_abs_error for check in outcome.checks if check.max_abs_error is not None]
    worst = f"; largest error {max(errors):.2g}" if errors else ""
    return f"{right} of {len(outcome.checks)} calls right at {shapes} shapes{worst}"


def _timing(timing: Timing) -> str:
    parts = [f"{len(timing.samples_ms)} samples", f"interquartile range {fmt.duration(timing.iqr_ms)}"]
    if timing.outside_ms is not None:
        parts.append(f"outside clock {fmt.duration(timing.outside_ms)}")
    if timing.disturbed:
        parts.append(f"{timing.disturbed} dropped")
    return ", ".join(parts)
