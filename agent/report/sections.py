"""The parts of the report, each a function from the folded state or the events to a `Section`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.branches import gap, over_baseline
from agent.report.findings import findings
from agent.report.roofline import bandwidth_rows, find_roofline, roofline_lines, roofline_rows
from agent.report.trust import environment_section
from agent.report.view import (
    Listing,
    Report,
    Section,
    Table,
    about,
    attributions,
    cautions,
    figures,
    of_type,
    times,
    verdict,
)
from agent.report.waterfall import Step, waterfalls
from agent.state import State
from profiling.findings import AXES, MethodPresence, Profile

_MODEL_COLUMNS = ("model", "calls", "cost", "branches", "right", "accepted")
_STAGE_COLUMNS = ("stage", "replies", "input", "from the cache", "output", "cost")
_BYTES_COLUMNS = ("kernel", "time", "memory traffic", "least bytes over time", "of the measured bandwidth")
_PATH_COLUMNS = ("kernel", "time", "memory traffic", "operations per byte", "rate", "of the roof above it")

_METRICS_SHOWN = 12
_LONGEST_MIX = 120  # characters: the names of functions called are long


def build_report(state: State, events: Sequence[AnyEvent]) -> Report:
    """Everything the report says."""
    return Report(
        title=" ".join(filter(None, (state.task, state.backend and f"({state.backend})"))) or fmt.MISSING,
        verdict=verdict(state, events),
        about=about(state, events),
        caution=cautions(state, events),
        times=times(state, events),
        figures=figures(state, events),
        findings=findings(state, events),
        sections=(
            _timeline(state, events),
            _roofline(state, events),
            _attribution(events),
            _drift(state, events),
            _branches(state),
            _machine_code(events),
            _profile(events),
            _frontier(state),
            _memory(state, events),
            _cost(state, events),
            environment_section(state, events),
        ),
    )


def _timeline(state: State, events: Sequence[AnyEvent]) -> Section:
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
    return Section("timeline", "Timeline", tables=(Table(columns, rows, numeric), _causes(events)))


def _causes(events: Sequence[AnyEvent]) -> Table:
    """Why each method was planned: the metrics that the plan cited, with the values they had."""
    rows = tuple(
        (
            str(event.iteration),
            method.id,
            ", ".join(f"{trigger.metric} {trigger.value:g}" for trigger in method.triggers),
            method.why,
        )
        for event in of_type(events, ev.PlanDecided)
        if event.plan is not None
        for method in event.plan.methods
    )
    columns = ("iteration", "method", "cites", "why")
    return Table(columns, rows, frozenset(("iteration",)), "Why each method was tried", folded=True)


def _roofline(state: State, events: Sequence[AnyEvent]) -> Section:
    found = find_roofline(state, events)
    if found is None:
        rows = bandwidth_rows(state, events)
        why = "The task's operations are not known (`task.work.flops`): kernels by bytes alone."
        table = Table(_BYTES_COLUMNS, rows, frozenset(_BYTES_COLUMNS[1:]))
        return Section("roofline", "Roofline", lines=(why,) if rows else (), tables=(table,))
    table = Table(_PATH_COLUMNS, roofline_rows(found), frozenset(_PATH_COLUMNS[1:]))
    return Section("roofline", "Roofline", lines=roofline_lines(found), tables=(table,))


def _branches(state: State) -> Section:
    rows = tuple(
        (
            str(b.iteration),
            b.name + (" (champion)" if b.champion else ""),
            b.status,
            fmt.duration(b.median_ms),
            over_baseline(b, state),
            gap(b),
            str(b.repairs),
            b.reason or fmt.MISSING,
            " ".join(filter(None, (b.provider, b.model))) or fmt.MISSING,
            fmt.dollars(b.usd),
        )
        for b in state.branches
    )
    columns = ("iteration", "branch", "status", "time", "over baseline", "gap", "repairs", "reason", "model", "cost")
    numeric = frozenset(("iteration", "time", "over baseline", "gap", "repairs", "cost"))
    return Section("branches", "Branches", tables=(Table(columns, rows, numeric),))


def _drift(state: State, events: Sequence[AnyEvent]) -> Section:
    found = {e.iteration: e for e in of_type(events, ev.RooflineRecorded)}
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
            ", ".join(f"{axis} {found[r.iteration].axis_budget.get(axis, 0)}" for axis in AXES),
        )
        for r in state.roofline_history
    )
    columns = ("iteration", "best at its start", "floor", "gap", *AXES, "leads", "methods asked for")
    why = tuple(f"Iteration {e.iteration}: {e.headroom.why}" for e in found.values())
    lines = ("Headroom per axis (0 to 1) of the best kernel as each iteration began.",) if rows else ()
    table = Table(columns, rows, frozenset(columns[:-2]))
    return Section("drift", "Bottleneck drift", lines=lines, tables=(table,), bullets=why)


def _attribution(events: Sequence[AnyEvent]) -> Section:
    tables = attributions(events)
    rows = tuple(
        (
            str(event.iteration),
            row.method,
            row.method_class.replace("_", " "),
            fmt.difference(row.attribution_ms, row.low_ms, row.high_ms),
            row.presence,
            row.form or fmt.MISSING,
            row.reason,
        )
        for event in tables
        for row in event.rows
    )
    columns = ("iteration", "method", "class", "attribution", "machine code", "ablated by", "reason")
    rests = {number: _unexplained(steps) for number, steps in waterfalls(events)}
    bullets = tuple(
        f"Iteration {e.iteration}: gain {fmt.difference(e.gain_ms)}{rests.get(e.iteration, '')}; "
        f"switch audit: {e.audit or fmt.MISSING}"
        for e in tables
    )
    lines = ("Attribution is the time without the method less the champion's, with a 95% interval.",) if rows else ()
    table = Table(columns, rows, frozenset(("iteration", "attribution")))
    return Section("attribution", "Attribution", lines=lines, tables=(table,), bullets=bullets)


def _unexplained(steps: Sequence[Step]) -> str:
    """What the attributions of an iteration leave of its gain, or count twice; nothing where they add up."""
    found = [step.end - step.begin for step in steps if step.kind == "not attributed"]
    if not found:
        return ""
    what = "explained by no method alone" if found[0] < 0 else "counted under several methods"
    return f", {fmt.duration(abs(found[0]))} of it {what}"


def _machine_code(events: Sequence[AnyEvent]) -> Section:
    checked = [(event.iteration, p) for event in of_type(events, ev.MachineCodeChecked) for p in event.presence]
    rows = tuple((str(number), p.method, p.verdict, _growth(p), p.reason) for number, p in checked)
    listings = tuple(Listing(f"Iteration {n}, {p.method}", "\n".join(p.lines)) for n, p in checked if p.lines)
    columns = ("iteration", "method", "verdict", "instructions before → after", "reason")
    evidence = Table(columns, rows, frozenset(("iteration",)), "Each method's instructions")
    return Section("machine-code", "Machine code", tables=(evidence, _mixes(events)), listings=listings)


def _growth(presence: MethodPresence) -> str:
    """Each pattern with its counts in the kernel before and in this one: `vfmadd 0 → 96`."""
    patterns = dict.fromkeys([*presence.before, *presence.after])
    counts = ((p, presence.before.get(p, fmt.MISSING), presence.after.get(p, fmt.MISSING)) for p in patterns)
    return "; ".join(f"{pattern} {before} → {after}" for pattern, before, after in counts) or fmt.MISSING


def _profile(events: Sequence[AnyEvent]) -> Section:
    profiled = of_type(events, ev.Profiled)
    if not profiled:
        return Section("profile", "Profiles")
    first, newest = profiled[0], profiled[-1]
    ranked = sorted(newest.profile.metrics, key=lambda m: -m.distance)[:_METRICS_SHOWN]
    metrics = tuple(
        (m.name, m.axis, m.unit, _value(first.profile, m.name), fmt.quantity(m.value), m.good, m.meaning)
        for m in ranked
    )
    columns = ("metric", "axis", "unit", "baseline", "newest", "good is", "meaning")
    numeric = frozenset(("baseline", "newest"))
    lines = ("The baseline beside the newest kernel profiled, what is furthest from good first.",)
    return Section("profile", "Profiles", lines=lines, tables=(Table(columns, metrics, numeric),))


def _mixes(events: Sequence[AnyEvent]) -> Table:
    """Instructions by kind in the baseline and in the newest kernel profiled."""
    profiled = of_type(events, ev.Profiled)
    rows: tuple[tuple[str, ...], ...] = ()
    if profiled:
        first, newest = profiled[0].mix, profiled[-1].mix
        keys = dict.fromkeys([*first, *newest])
        rows = tuple((key.replace("_", " "), _mix(first, key), _mix(newest, key)) for key in keys)
    columns = ("instructions", "baseline", "newest kernel profiled")
    return Table(columns, rows, frozenset(columns[1:]), "Instructions by kind", folded=True)


def _value(profile: Profile, name: str) -> str:
    value = profile.value(name)
    return fmt.MISSING if value is None else fmt.quantity(value)


def _mix(mix: Mapping[str, int | float | str], key: str) -> str:
    value = mix.get(key)
    if value is None:
        return fmt.MISSING
    return fmt.significant(value) if isinstance(value, float) else fmt.shortened(str(value), _LONGEST_MIX)


def _frontier(state: State) -> Section:
    rows = tuple(
        (str(f.iteration), f.name, fmt.duration(f.median_ms), f"+{fmt.percent(f.gap)}") for f in state.frontier
    )
    columns = ("iteration", "branch", "time", "behind its champion")
    lines = ("Correct branches that did not become champion.",) if rows else ()
    numeric = frozenset(("iteration", "time", "behind its champion"))
    return Section("frontier", "Frontier", lines=lines, tables=(Table(columns, rows, numeric),))


def _memory(state: State, events: Sequence[AnyEvent]) -> Section:
    rows: list[tuple[str, ...]] = []
    for event in of_type(events, ev.Recalled):
        recall = event.recall
        for label, advice in (("blocked", recall.blocked), ("preferred", recall.preferred)):
            number = str(event.iteration)
            rows += [(number, label, " + ".join(a.methods), fmt.speedup(a.effect), a.evidence) for a in advice]
        rows += [(str(event.iteration), "lesson", fmt.MISSING, fmt.MISSING, lesson) for lesson in recall.lessons]
    columns = ("iteration", "told as", "methods", "effect", "evidence")
    used = Table(columns, tuple(rows), frozenset(("iteration", "effect")), "What memory told the prompts")
    written = sum(len(e.records) for e in of_type(events, ev.Remembered))
    lines = (f"Records written to strategy memory: {written}.",) if of_type(events, ev.Remembered) else ()
    learned = Table(("lesson",), tuple((lesson,) for lesson in state.lessons), title="What this run learned")
    return Section("memory", "Memory", lines=lines, tables=(used, learned))


def _batches(events: Sequence[AnyEvent]) -> tuple[str, ...]:
    sent, ended = of_type(events, ev.BatchSent), of_type(events, ev.BatchEnded)
    if not sent:
        return ()
    asked, answered = sum(len(e.steps) for e in sent), sum(e.answered for e in ended)
    given_up = [f"{e.key} {e.outcome}{f': {e.reason}' if e.reason else ''}" for e in ended if e.outcome != "finished"]
    many = (
        f"{len(sent)} batch{'es' if len(sent) > 1 else ''} answered {answered} of {asked} branches at the batch price"
    )
    return ("; ".join([many, *given_up]) + ".",)


def _stage(purpose: str, usd: float, state: State, events: Sequence[AnyEvent]) -> tuple[str, ...]:
    """What one kind of question took; a request lost in flight is in the cost, and in nothing else."""
    used = [e.reply.usage for e in of_type(events, ev.ReplyReceived) if e.purpose == purpose]
    cached = [u.cache_read or 0 for u in used]
    read = [(u.input or 0) + (u.cache_read or 0) + (u.cache_write or 0) for u in used]
    tokens = (sum(read), sum(cached), sum(u.output or 0 for u in used))
    # One unknown price makes all sums of money unknown.
    price = fmt.dollars(usd if state.cost.usd is not None else None)
    return (purpose, str(len(used)), *map(fmt.count, tokens), price)


def _cost(state: State, events: Sequence[AnyEvent]) -> Section:
    cost = state.cost
    stages = tuple(_stage(purpose, usd, state, events) for purpose, usd in cost.by_purpose.items())
    by_model = tuple(
        (
            " ".join(filter(None, (m.provider, m.model))),
            str(m.calls),
            fmt.dollars(m.usd),
            str(m.branches),
            str(m.right),
            str(m.accepted),
        )
        for m in state.models
    )
    tokens = ", ".join(f"{kind.replace('_', ' ')} {fmt.count(amount)}" for kind, amount in cost.tokens.items())
    read = cost.tokens["input"] + cost.tokens["cache_read"] + cost.tokens["cache_write"]
    cached = f"; {fmt.percent(cost.tokens['cache_read'] / read)} of the input came from the cache" if read else ""
    retried = f" ({cost.retried} attempts failed and were made again)" if cost.retried else ""
    failed = [f"{e.key} failed ({e.kind}): {e.message}" for e in of_type(events, ev.RequestFailed)]
    return Section(
        "cost",
        "Cost",
        lines=(
            f"{fmt.dollars(cost.usd)} for {cost.calls} calls{retried}; tokens: {tokens}{cached}.",
            *_batches(events),
        ),
        tables=(
            Table(_STAGE_COLUMNS, stages, frozenset(_STAGE_COLUMNS[1:])),
            Table(_MODEL_COLUMNS, by_model, frozenset(_MODEL_COLUMNS[1:])),
        ),
        bullets=tuple(failed),
    )
