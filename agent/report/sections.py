"""The parts of the report, each a function from the folded state or the events to a `Section`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.trust import environment_section
from agent.report.view import (
    Listing,
    Report,
    Section,
    Table,
    cautions,
    figures,
    headline,
    of_type,
)
from agent.state import State
from profiling.types import AXES, Profile

_MODEL_COLUMNS = ("model", "replies", "cost", "branches", "right", "accepted")

_METRICS_SHOWN = 12


def build_report(state: State, events: Sequence[AnyEvent]) -> Report:
    """Everything the report says."""
    line, improved = headline(state, events)
    return Report(
        title=" ".join(filter(None, (state.task, state.backend and f"({state.backend})"))) or fmt.MISSING,
        headline=line,
        improved=improved,
        caution=cautions(state, events),
        figures=figures(state, events),
        sections=(
            _timeline(state),
            _branches(state),
            _drift(state, events),
            _attribution(state, events),
            _machine_code(events),
            _profile(events),
            _frontier(state),
            _memory(state, events),
            _cost(state, events),
            environment_section(state, events),
        ),
    )


def _timeline(state: State) -> Section:
    rows = tuple(
        (
            str(i.iteration),
            ", ".join(i.methods) or fmt.MISSING,
            i.champion or fmt.MISSING,
            fmt.duration(i.champion_ms),
            fmt.speedup(i.speedup, i.low, i.high),
            i.status,
            i.reason or fmt.MISSING,
        )
        for i in sorted(state.iterations, key=lambda i: i.iteration)
    )
    columns = ("iteration", "methods", "champion", "time", "speedup over the best before", "status", "reason")
    numeric = frozenset(("iteration", "time", "speedup over the best before"))
    return Section("timeline", "Timeline", tables=(Table(columns, rows, numeric),))


def _branches(state: State) -> Section:
    rows = []
    for b in state.branches:
        # A suspect time is shown, but it is no speedup.
        over_baseline = (
            state.baseline_ms / b.median_ms if b.status == "pass" and state.baseline_ms and b.median_ms else None
        )
        rows.append(
            (
                str(b.iteration),
                b.name + (" (champion)" if b.champion else ""),
                b.status,
                fmt.duration(b.median_ms),
                fmt.speedup(over_baseline),
                fmt.MISSING if b.gap is None else f"+{fmt.percent(b.gap)}" if b.gap > 0 else fmt.percent(b.gap),
                str(b.repairs),
                b.reason or fmt.MISSING,
                b.model or fmt.MISSING,
            )
        )
    columns = ("iteration", "branch", "status", "time", "over baseline", "gap", "repairs", "reason", "model")
    numeric = frozenset(("iteration", "time", "over baseline", "gap", "repairs"))
    return Section("branches", "Branches", tables=(Table(columns, tuple(rows), numeric),))


def _drift(state: State, events: Sequence[AnyEvent]) -> Section:
    rows = tuple(
        (
            str(r.iteration),
            fmt.duration(r.time_ms),
            fmt.duration(r.floor_ms),
            fmt.percent(r.gap),
            fmt.share(r.compute),
            fmt.share(r.memory),
            fmt.share(r.latency),
            "near peak" if r.near_peak else r.bound,
        )
        for r in state.roofline_history
    )
    columns = ("iteration", "best at its start", "floor", "gap", *AXES, "leads")
    why = tuple(f"Iteration {e.iteration}: {e.headroom.why}" for e in of_type(events, ev.RooflineRecorded))
    budget = tuple(
        f"Iteration {e.iteration} slots: " + ", ".join(f"{axis} {e.axis_budget.get(axis, 0)}" for axis in AXES)
        for e in of_type(events, ev.RooflineRecorded)
    )
    lines = ("Headroom per axis (0 to 1) of the best kernel as each iteration began.",) if rows else ()
    table = Table(columns, rows, frozenset(columns[:-1]))
    return Section("drift", "Bottleneck drift", lines=lines, tables=(table,), bullets=(*why, *budget))


def _attribution(state: State, events: Sequence[AnyEvent]) -> Section:
    tables = of_type(events, ev.Attributed)
    rows = tuple(
        (
            str(event.iteration),
            row.method,
            row.axis,
            row.method_class.replace("_", " "),
            fmt.difference(row.attribution_ms, row.low_ms, row.high_ms),
            row.presence,
            row.form or fmt.MISSING,
            row.reason,
        )
        for event in tables
        for row in event.rows
    )
    columns = ("iteration", "method", "axis", "class", "attribution", "machine code", "ablated by", "reason")
    bullets = tuple(
        f"Iteration {e.iteration}: gain {fmt.difference(e.gain_ms)}; switch audit: {e.audit or fmt.MISSING}"
        for e in tables
    )
    lines = ("Attribution is the time without the method less the champion's, with a 95% interval.",) if rows else ()
    table = Table(columns, rows, frozenset(("iteration", "attribution")))
    return Section("attribution", "Attribution", lines=lines, tables=(table,), bullets=bullets)


def _machine_code(events: Sequence[AnyEvent]) -> Section:
    rows: list[tuple[str, ...]] = []
    listings = []
    for event in of_type(events, ev.MachineCodeChecked):
        for p in event.presence:
            patterns = list(dict.fromkeys([*p.before, *p.after])) or [fmt.MISSING]
            for pattern in patterns:
                before, after = _count(p.before, pattern), _count(p.after, pattern)
                rows.append((str(event.iteration), p.method, p.verdict, pattern, before, after, p.reason))
            if p.lines:
                listings.append(Listing(f"Iteration {event.iteration}, {p.method}", "\n".join(p.lines)))
    columns = ("iteration", "method", "verdict", "pattern", "before", "after", "reason")
    table = Table(columns, tuple(rows), frozenset(("iteration", "before", "after")))
    return Section("machine-code", "Machine code", tables=(table,), listings=tuple(listings))


def _count(counts: Mapping[str, int], pattern: str) -> str:
    return str(counts[pattern]) if pattern in counts else fmt.MISSING


def _profile(events: Sequence[AnyEvent]) -> Section:
    profiled = of_type(events, ev.Profiled)
    if not profiled:
        return Section("profile", "Profiles")
    first, newest = profiled[0], profiled[-1]
    ranked = sorted(newest.profile.metrics, key=lambda m: -m.distance)[:_METRICS_SHOWN]
    metrics = tuple(
        (m.name, m.axis, m.unit, _value(first.profile, m.name), fmt.significant(m.value), m.good, m.meaning)
        for m in ranked
    )
    keys = list(dict.fromkeys([*first.mix, *newest.mix]))
    mix = tuple((key, _mix(first.mix, key), _mix(newest.mix, key)) for key in keys)
    columns = ("metric", "axis", "unit", "first", "newest", "good is", "meaning")
    numeric = frozenset(("first", "newest"))
    return Section(
        "profile",
        "Profiles",
        lines=("The first kernel profiled (the baseline) beside the newest.",),
        tables=(Table(columns, metrics, numeric), Table(("instruction mix", "first", "newest"), mix, numeric)),
    )


def _value(profile: Profile, name: str) -> str:
    value = profile.value(name)
    return fmt.MISSING if value is None else fmt.significant(value)


def _mix(mix: Mapping[str, int | float | str], key: str) -> str:
    value = mix.get(key)
    return fmt.MISSING if value is None else fmt.significant(value) if isinstance(value, float) else str(value)


def _frontier(state: State) -> Section:
    rows = tuple(
        (str(f.iteration), f.name, fmt.duration(f.median_ms), f"+{fmt.percent(f.gap)}") for f in state.frontier
    )
    columns = ("iteration", "branch", "time", "behind its champion")
    lines = ("Correct branches that did not become champion.",) if rows else ()
    numeric = frozenset(("iteration", "time", "behind its champion"))
    return Section("frontier", "Frontier", lines=lines, tables=(Table(columns, rows, numeric),))


def _memory(state: State, events: Sequence[AnyEvent]) -> Section:
    lines = []
    for event in of_type(events, ev.Recalled):
        for label, advice in (("blocked", event.recall.blocked), ("preferred", event.recall.preferred)):
            lines += [
                f"Iteration {event.iteration} was told that {' + '.join(a.methods)} is {label} "
                f"({fmt.speedup(a.effect)}): {a.evidence}"
                for a in advice
            ]
    written = sum(len(e.records) for e in of_type(events, ev.Remembered))
    if of_type(events, ev.Remembered):
        lines.append(f"Records written to strategy memory: {written}.")
    return Section("learned", "What was learned", lines=tuple(lines), bullets=state.lessons)


def _branches_of(model: str, state: State) -> tuple[str, str, str]:
    """How many branches a model made, how many were right, and how many became the best kernel."""
    own = [b for b in state.branches if b.model == model]
    accepted = {i.iteration for i in state.iterations if i.status == "accepted"}
    won = sum(b.champion and b.iteration in accepted for b in own)
    return str(len(own)), str(sum(b.status == "pass" for b in own)), str(won)


def _cost(state: State, events: Sequence[AnyEvent]) -> Section:
    cost = state.cost
    purposes = tuple(
        (purpose, fmt.dollars(usd if cost.usd is not None else None)) for purpose, usd in cost.by_purpose.items()
    )
    models: dict[str, list[float | None]] = {}
    for event in of_type(events, ev.ReplyReceived):
        models.setdefault(event.reply.model, []).append(event.reply.usd)
    by_model = tuple(
        (
            model,
            str(len(prices)),
            fmt.dollars(None if None in prices else sum(p or 0.0 for p in prices)),
            *_branches_of(model, state),
        )
        for model, prices in models.items()
    )
    tokens = ", ".join(f"{kind.replace('_', ' ')} {fmt.count(amount)}" for kind, amount in cost.tokens.items())
    read = cost.tokens["input"] + cost.tokens["cache_read"] + cost.tokens["cache_write"]
    cached = f"; {fmt.percent(cost.tokens['cache_read'] / read)} of the input came from the cache" if read else ""
    retried = f" ({cost.retried} attempts failed and were made again)" if cost.retried else ""
    failed = [f"{e.key} failed ({e.kind}): {e.message}" for e in of_type(events, ev.RequestFailed)]
    return Section(
        "cost",
        "Cost",
        lines=(f"{fmt.dollars(cost.usd)} for {cost.calls} calls{retried}; tokens: {tokens}{cached}.",),
        tables=(
            Table(("purpose", "cost"), purposes, frozenset(("cost",))),
            Table(_MODEL_COLUMNS, by_model, frozenset(_MODEL_COLUMNS[1:])),
        ),
        bullets=tuple(failed),
    )
