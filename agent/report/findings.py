"""Why the numbers can be believed, in a few words each; the whole of it stands under "Environment and trust"."""

from __future__ import annotations

from collections.abc import Sequence

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.view import Finding, last, of_type
from agent.state import State
from profiling.findings import Comparison, Evaluation


def findings(state: State, events: Sequence[AnyEvent]) -> tuple[Finding, ...]:
    """What was checked and what came of it; what is not known (yet) is left out."""
    found = (
        _answers(state, events),
        _sandbox(events),
        _noise(state),
        _exploits(events),
        _suspects(state),
        _dropped(events),
        _sanitizers(state, events),
        _evidence(state, events),
    )
    return tuple(finding for finding in found if finding is not None)


def _answers(state: State, events: Sequence[AnyEvent]) -> Finding | None:
    """Calls of the best kernel that were judged before it was timed."""
    best = [e.outcome for e in of_type(events, ev.Evaluated) if _name(e) == state.best_from]
    if not best or not isinstance(best[-1], Evaluation):
        return None
    checks = best[-1].checks
    right = sum(check.passed for check in checks)
    shapes = len({tuple(check.dims.items()) for check in checks})
    return Finding("right answers", f"{right} of {len(checks)} calls, {shapes} shapes", right == len(checks))


def _name(event: ev.Evaluated) -> str:
    return event.branch if event.iteration == 0 else f"iteration {event.iteration}, {event.branch}"


def _sandbox(events: Sequence[AnyEvent]) -> Finding | None:
    session = last(events, ev.SessionStarted)
    if session is None or not session.environment.layers:
        return None
    layers = session.environment.layers
    missing = [name for name, stands in layers.items() if not stands]
    value = f"{len(layers) - len(missing)} of {len(layers)} layers"
    return Finding("sandbox", f"{value}; without {', '.join(missing)}" if missing else value, None if missing else True)


def _noise(state: State) -> Finding | None:
    if state.aa_spread is None:
        return None
    return Finding("A/A spread", fmt.percent(state.aa_spread), True if state.aa_spread <= state.noise else None)


def _exploits(events: Sequence[AnyEvent]) -> Finding | None:
    played = last(events, ev.ExploitsPlayed)
    if played is None:
        return None
    return Finding("known exploits", f"{len(played.rejected)} played, all rejected", True if played.rejected else None)


def _suspects(state: State) -> Finding | None:
    if not state.branches:
        return None
    number = sum(branch.status == "suspect" for branch in state.branches)
    return Finding("suspect times", f"{number}, kept out" if number else "none", None if number else True)


def _dropped(events: Sequence[AnyEvent]) -> Finding | None:
    """Only a GPU's samples are watched for heat and other work; elsewhere none is ever dropped, and nothing is said."""
    session = last(events, ev.SessionStarted)
    if session is None or session.environment.gpu is None:
        return None
    samples, blocks = dropped(events)
    if samples + blocks == 0:
        return Finding("dropped", "no samples", True)
    return Finding("dropped", f"{samples} samples, {blocks} blocks", None)


def dropped(events: Sequence[AnyEvent]) -> tuple[int, int]:
    """Samples, and blocks of comparisons, that were dropped over the whole run: heat or other work disturbed them."""
    outcomes = [e.outcome for e in of_type(events, ev.Evaluated)]
    samples = sum(o.timing.disturbed for o in outcomes if isinstance(o, Evaluation) and o.timing)
    compared = [e.outcome for e in of_type(events, ev.Compared)]
    return samples, sum(c.disturbed for c in compared if isinstance(c, Comparison))


def _sanitizers(state: State, events: Sequence[AnyEvent]) -> Finding | None:
    if state.best_from == "baseline":
        return None
    best = state.best_from.replace("iteration ", "iter").replace(", ", "/")
    ran = [e for e in of_type(events, ev.Sanitized) if e.kernel == best]
    if not ran:
        return Finding("sanitizers", "did not run", None)
    report = ran[-1].report
    if report.findings:
        # Of a kernel that was accepted, so nothing that the baseline does not show as well.
        return Finding("sanitizers", f"{len(report.findings)} findings", None)
    if not report.clean:
        return Finding("sanitizers", "none could run", None)
    return Finding("sanitizers", f"clean: {', '.join(report.clean)}", True)


def _evidence(state: State, events: Sequence[AnyEvent]) -> Finding | None:
    profiled = last(events, ev.Profiled)
    if profiled is None:
        return None
    level = f"{profiled.profile.source}, {profiled.profile.level}"
    return Finding("counters", level, None if state.degraded is not None else True)
