"""Why the numbers can be believed, and where they cannot: machine, ceilings, checks, walls, noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.findings import dropped
from agent.report.view import Section, Table, baseline_timing, last, of_type
from agent.state import State
from profiling.environment import Environment
from profiling.findings import Timing


def environment_section(state: State, events: Sequence[AnyEvent]) -> Section:
    """The last part of the report."""
    groups = {
        "What a claim must clear": _claim_rows(state, events),
        "What kernels are held to": _check_rows(events),
        "Machine": _machine_rows(events),
        "Ceilings": _ceiling_rows(events),
        "Run": _run_rows(state, events),
    }
    tables = tuple(Table(("what", "value"), tuple(rows), title=title) for title, rows in groups.items())
    return Section("trust", "Environment and trust", tables=tables, bullets=_bullets(state, events))


def _run_rows(state: State, events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    started = last(events, ev.RunStarted)
    if started is None:
        return []
    model = " ".join(filter(None, (started.provider, started.model)))
    recorded = " (answers were recorded)" if started.provider == "replay" else ""
    return [
        ("run", f"{started.run_id}, roofclimb {started.version}, started {fmt.instant(started.at)}"),
        ("status", f"{state.status}{': ' + state.stop_reason if state.stop_reason else ''}"),
        ("model", f"{model}{recorded}"),
        *_retry_rows(events),
    ]


def _retry_rows(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    """Builds and evaluations that were lost with the place where they ran: how many of each, where and why."""
    lost: dict[str, Counter[str]] = {}
    for event in of_type(events, ev.TaskRetried):
        kind = event.task.partition(" of ")[0]
        lost.setdefault(kind, Counter())[f"at {event.place}: {event.reason}"] += 1
    return [
        (f"{kind}s lost and done again", "; ".join(f"{number} {where}" for where, number in reasons.items()))
        for kind, reasons in lost.items()
    ]


def _device(machine: Environment) -> str:
    host = f"{machine.device.name}, {machine.device.usable_cores} usable cores"
    gpu = machine.gpu
    return host if gpu is None else f"{gpu.name} ({gpu.arch}, driver {gpu.driver_version}); host {host}"


def _machine_rows(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    sessions = of_type(events, ev.SessionStarted)
    if not sessions:
        return []
    machine = sessions[-1].environment
    devices = list(dict.fromkeys(s.device_id for s in sessions))
    layers = machine.layers
    on = ", ".join(name for name, in_force in layers.items() if in_force)
    off = ", ".join(name for name, in_force in layers.items() if not in_force)
    why = f" ({machine.counters_reason})" if machine.counters_reason else ""
    return [
        ("device", _device(machine)),
        ("device id", ", then ".join(devices)),
        ("sessions", str(len(sessions))),
        ("versions", "; ".join(f"{name}: {version or 'not installed'}" for name, version in machine.versions.items())),
        ("counters", f"{machine.counters}{why}"),
        ("sandbox layers in force", on or fmt.MISSING),
        ("sandbox layers missing", (off or "none") if layers else fmt.MISSING),
    ]


def _ceiling_rows(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    event = last(events, ev.CeilingsMeasured)
    if event is None:
        return [("ceilings", fmt.MISSING)]
    c = event.ceilings
    flops = ", ".join(f"{name} {fmt.giga(value, 'GFLOP/s')}" for name, value in c.flops.items())
    floor = last(events, ev.FloorFound)
    return [
        ("measured bandwidth", f"copy {fmt.giga(c.copy_bytes, 'GB/s')}, read {fmt.giga(c.read_bytes, 'GB/s')}"),
        ("measured arithmetic", flops or fmt.MISSING),
        ("where ceilings come from", "; ".join(f"{k}: {v}" for k, v in c.provenance.items()) or fmt.MISSING),
        ("floor at measured ceilings", fmt.duration(floor.floor_ms if floor else None)),
        ("suspect below", fmt.duration(floor.suspect_ms if floor else None)),
    ]


def _claim_rows(state: State, events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    spreads = [fmt.percent(e.spread) for e in of_type(events, ev.AaMeasured)]
    rows = [
        ("least gain that counts", fmt.percent(max(state.noise, state.aa_spread or 0.0))),
        ("noise setting", fmt.percent(state.noise)),
        ("A/A spread", ", then ".join(spreads) or fmt.MISSING),
        ("suspect kernels", str(sum(b.status == "suspect" for b in state.branches))),
    ]
    t = baseline_timing(events)
    if t is not None and any(t.conditions):
        samples, blocks = dropped(events)
        rows.append(("GPU while the baseline was timed", _conditions(t)))
        rows.append(("dropped: heat, or the GPU was shared", f"{samples} samples, {blocks} blocks of comparisons"))
    if t is not None:
        shape = f"{len(t.samples_ms)} samples, interquartile range {fmt.duration(t.iqr_ms)}, caches {t.l2}"
        shape += f", an empty call's {fmt.duration(t.overhead_ms)} taken off"
        rows.append(("baseline timing", f"{shape}; by the outside clock {fmt.duration(t.outside_ms)}"))
    return rows


def _check_rows(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    rows = [*_sanitizer_rows(events), ("wrong or not built", _fallen(events))]
    checked = last(events, ev.TaskChecked)
    if checked is not None:
        rows.append(("tolerance", _tolerance(checked)))
        rows.append(("wrong answers it rejects", ", ".join(checked.check.rejected) or fmt.MISSING))
    hidden = _hidden_shapes(events)
    if hidden:
        ended = last(events, ev.RunEnded) is not None
        rows.append(("hidden shapes", "; ".join(map(_shape, hidden)) if ended else f"{len(hidden)}, told at the end"))
    tried = last(events, ev.ExploitsPlayed)
    if tried is not None:
        left_out = "".join(f"; {name} left out: {why}" for name, why in tried.left_out.items())
        rows.append(("known exploits rejected at the start", ", ".join(tried.rejected) + left_out))
    return rows


def _conditions(timing: Timing) -> str:
    """The range of each reading: `clock 1965 to 1980 MHz, 61 to 63 °C, 480 to 512 W`."""
    seen = [c for c in timing.conditions if c is not None]
    readings = (
        ("clock ", " MHz", [c.sm_clock_mhz for c in seen if c.sm_clock_mhz is not None]),
        ("", " °C", [c.temperature_c for c in seen if c.temperature_c is not None]),
        ("", " W", [c.power_w for c in seen if c.power_w is not None]),
    )
    shown = [f"{name}{min(values):.0f} to {max(values):.0f}{unit}" for name, unit, values in readings if values]
    return ", ".join(shown) or fmt.MISSING


def _hidden_shapes(events: Sequence[AnyEvent]) -> Sequence[Mapping[str, int]]:
    drawn = last(events, ev.ShapesDrawn)
    return () if drawn is None else drawn.shapes


def _shape(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in dims.items())


def _sanitizer_rows(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    """What each kernel that ran under sanitizers showed; a tool that is not named did not run."""
    rows = []
    for event in of_type(events, ev.Sanitized):
        parts = [f"clean: {', '.join(event.report.clean)}"] if event.report.clean else []
        parts += map(str, event.report.findings)
        parts += (
            [f"unavailable: {', '.join(u.tool for u in event.report.unavailable)}"] if event.report.unavailable else []
        )
        rows.append((f"sanitizers, {event.kernel}", "; ".join(parts)))
    return rows or [("sanitizers", "no kernel ran under them")]


def _tolerance(checked: ev.TaskChecked) -> str:
    tolerance = checked.check.tolerance
    return fmt.MISSING if tolerance is None else f"atol {tolerance.atol:g}, rtol {tolerance.rtol:g}"


def _fallen(events: Sequence[AnyEvent]) -> str:
    """Where candidates fell, repairs counted too: `build 2, verify 1`."""
    stages: Counter[str] = Counter()
    for event in of_type(events, ev.BranchWritten):
        if event.rejected is not None:
            stages[event.rejected.stage] += 1
    for evaluated in of_type(events, ev.Evaluated):
        outcome = evaluated.outcome
        if outcome.kind == "rejected":
            stages[outcome.stage] += 1
        elif outcome.verdict in ("fail", "error"):
            stages[outcome.verdict] += 1
    return ", ".join(f"{stage} {number}" for stage, number in stages.items()) or "none"


def _reply_notes(events: Sequence[AnyEvent]) -> list[str]:
    """What replies came with; what many came with is said once. Hashes and the like, in brackets, tell them apart."""
    keys: dict[str, list[str]] = {}
    for event in of_type(events, ev.ReplyReceived):
        if event.reply.note:
            keys.setdefault(event.reply.note.partition(" (")[0], []).append(event.key)
    whole = {e.key: e.reply.note for e in of_type(events, ev.ReplyReceived)}
    return [
        f"Reply {named[0]}: {whole[named[0]]}"
        if len(named) == 1
        else f"{len(named)} replies: {note}: {', '.join(named)}"
        for note, named in keys.items()
    ]


def _bullets(state: State, events: Sequence[AnyEvent]) -> tuple[str, ...]:
    """Everything a person should know: dropped checks, what profiles lack, what replies and plans said, notes."""
    found: list[str] = []
    checked = last(events, ev.TaskChecked)
    if checked is not None:
        secret = _hidden_shapes(events) if last(events, ev.RunEnded) is None else ()
        for dims, reason in checked.check.dropped_checks:
            case = "a hidden shape" if dims in secret else f"{_shape(dims)} ({reason})"
            found.append(f"Check left out, the baseline itself fails it: {case}")
    found += [
        f"Profile ({e.profile.source}): {e.profile.note}"
        for e in of_type(events, ev.Profiled)
        if e.profile.note != state.degraded
    ]
    found += _reply_notes(events)
    sessions = of_type(events, ev.SessionStarted)
    if sessions:
        found += [f"Missing: {s.what}; {s.remedy}" for s in sessions[-1].environment.shortfalls]
    found += [f"Paused ({e.status}): {e.reason}" for e in of_type(events, ev.Paused)]
    return tuple(dict.fromkeys([*found, *state.notes]))
