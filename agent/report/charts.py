"""The charts of a run, each by the anchor of the section that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.roofline import find_roofline, roofline_spec
from agent.report.vega import AXIS_COLOURS, PLAIN_NUMBERS, Chart, Spec, draw, logarithmic, scale_of
from agent.report.view import baseline_and_best_ms, last
from agent.report.waterfall import Step, is_zoomed, waterfall_spec, waterfalls
from agent.state import BranchState, State
from profiling.types import AXES

_KINDS = {"pass": "correct", "suspect": "suspect", "unverified": "unverified"}
_COLOURS = {
    "accepted": "var(--good)",
    "correct": "var(--compute)",
    "suspect": "var(--unsure)",
    "unverified": "var(--unsure)",
    "no time": "var(--bad)",
}
# Shapes beside colours, for those who do not see these.
_SHAPES = {
    "accepted": "diamond",
    "correct": "circle",
    "suspect": "triangle-up",
    "unverified": "square",
    "no time": "cross",
}
_QUIET = {"aria": False}
_WIDTHS = {"times": 500}
_TIMELINE = "Best time after each iteration (line) and the time of every branch (marks)"


def draw_charts(state: State, events: Sequence[AnyEvent]) -> Mapping[str, tuple[Chart, ...]]:
    """Charts by anchor; a chart without data is left out."""
    drawn: dict[str, tuple[Chart | None, ...]] = {
        "times": (
            _drawn("times", "Time of one call; the floor is the least that this device allows", _times(state, events)),
        ),
        "timeline": (_drawn("timeline", _TIMELINE, _timeline(state)),),
        "roofline": (_roofline(state, events),),
        "attribution": tuple(_attribution(number, steps) for number, steps in waterfalls(events)),
        "drift": (_drawn("drift", "Headroom on each axis as each iteration began: 0 is at the floor", _drift(state)),),
    }
    charts = {anchor: tuple(c for c in found if c is not None) for anchor, found in drawn.items()}
    return {anchor: found for anchor, found in charts.items() if found}


def _drawn(name: str, caption: str, spec: Spec | None) -> Chart | None:
    return None if spec is None else draw(name, caption, spec, wide=_WIDTHS.get(name, 880))


def _roofline(state: State, events: Sequence[AnyEvent]) -> Chart | None:
    found = find_roofline(state, events)
    return (
        None
        if found is None
        else _drawn("roofline", "The path of the best kernel under measured ceilings", roofline_spec(found))
    )


def _attribution(iteration: int, steps: Sequence[Step]) -> Chart:
    caption = f"Iteration {iteration}: from the best before it to its champion, each method with its 95% interval"
    if is_zoomed(steps):
        caption += "; the axis does not begin at 0"
    wide, narrow = (waterfall_spec(steps, phone=phone) for phone in (False, True))
    return draw(f"attribution{iteration}", caption, wide, narrow)


def _times(state: State, events: Sequence[AnyEvent]) -> Spec | None:
    """The few times that the headline stands on, side by side."""
    baseline_ms, best_ms = baseline_and_best_ms(state, events)
    floor = last(events, ev.FloorFound)
    rows = [
        ("baseline", baseline_ms, "time"),
        ("reference", state.reference_ms, "time"),
        ("best", best_ms, "best"),
        ("floor", floor.floor_ms if floor else None, "floor"),
    ]
    values = [{"name": n, "ms": ms, "kind": k, "text": fmt.duration(ms)} for n, ms, k in rows if ms]
    if baseline_ms is None:
        return None
    y = {
        "field": "name",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"ticks": False, "domain": False, "labelPadding": 8, "labelFontSize": 13},
    }
    # Room at the right for the longest bar's text.
    x = {
        "field": "ms",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [0, 1.28 * max(v["ms"] for v in values)]},
    }
    colours = {"time": "var(--idle)", "best": "var(--good)", "floor": "var(--faint)"}
    scale = scale_of(colours, [v["kind"] for v in values])
    return {
        "height": {"step": 27},
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2, "height": 14},
                "encoding": {
                    "y": y,
                    "x": x,
                    "color": {"field": "kind", "type": "nominal", "legend": None, "scale": scale},
                    "description": {"field": "text"},
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "fill": "var(--text)", "fontSize": 13, **_QUIET},
                "encoding": {"y": y, "x": x, "text": {"field": "text"}},
            },
        ],
        "data": {"values": values},
    }


def _timeline(state: State) -> Spec | None:
    if not state.baseline_ms:
        return None
    points = [_point(state, branch) for branch in state.branches]
    # A forged clock can say 0 ms, which no logarithmic axis holds: such a point has no time worth showing.
    timed = [p for p in points if p["ms"]]
    untimed = [{**p, "kind": "no time"} for p in points if not p["ms"]]
    steps = [{"x": 0.0, "ms": state.baseline_ms, "says": f"baseline: {fmt.duration(state.baseline_ms)}"}]
    for line in sorted(state.iterations, key=lambda i: i.iteration):
        accepted_ms = line.champion_ms if line.status == "accepted" else None
        steps.append({"x": float(line.iteration), "ms": accepted_ms or steps[-1]["ms"], "says": ""})
    last_iteration = max([1, *(int(s["x"]) for s in steps), *(b.iteration for b in state.branches)])
    steps.append({**steps[-1], "x": last_iteration + 0.5})
    times = [p["ms"] for p in timed] + [s["ms"] for s in steps]
    if max(times) > 4 * min(times):
        scale, ticks = logarithmic(min(times), max(times))
    else:
        scale, ticks = {"type": "linear", "zero": False}, {"tickCount": 5}
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "iteration (0 is the baseline)",
        "scale": {"domain": [-0.25, last_iteration + 0.5]},
        "axis": {"values": list(range(last_iteration + 1)), "format": "d", "grid": False},
    }
    y = {
        "field": "ms",
        "type": "quantitative",
        "title": "time of a call (ms)",
        "scale": {"padding": 18, **scale},
        "axis": {**PLAIN_NUMBERS, **ticks},
    }
    present = [p["kind"] for p in (*timed, *untimed)]
    marks = {
        "color": {"field": "kind", "type": "nominal", "scale": scale_of(_COLOURS, present)},
        "shape": {"field": "kind", "type": "nominal", "scale": scale_of(_SHAPES, present)},
        "description": {"field": "says"},
        "href": {"field": "link"},
    }
    mark = {"type": "point", "filled": True, "size": 85, "opacity": 1}
    label = {"type": "text", "fill": "var(--text)", "fontSize": 12, **_QUIET}
    line = {"type": "line", "interpolate": "step-after", "stroke": "var(--good)", "strokeWidth": 2, **_QUIET}
    return {
        "height": 300,
        "layer": [
            {"data": {"values": steps}, "mark": line, "encoding": {"x": x, "y": y}},
            {
                "data": {"values": steps[:1]},
                "mark": {"type": "point", "filled": True, "size": 85, "opacity": 1, "color": "var(--muted)"},
                "encoding": {"x": x, "y": y, "description": {"field": "says"}},
            },
            {
                "data": {"values": steps[:1]},
                "mark": {**label, "align": "left", "dx": 8, "dy": -9, "text": "baseline"},
                "encoding": {"x": x, "y": y},
            },
            {"data": {"values": timed}, "mark": mark, "encoding": {"x": x, "y": y, **marks}},
            {
                "data": {"values": [p for p in timed if p["kind"] == "accepted"]},
                "mark": {**label, "dy": 16},
                "encoding": {"x": x, "y": y, "text": {"field": "branch"}},
            },
            {
                "data": {"values": untimed},
                "mark": {**mark, "angle": 45},
                "encoding": {"x": x, "y": {"value": 6}, **marks},
            },
        ],
    }


def _point(state: State, branch: BranchState) -> Spec:
    siblings = [b.name for b in state.branches if b.iteration == branch.iteration]
    index = siblings.index(branch.name)
    accepted = any(i.iteration == branch.iteration and i.status == "accepted" for i in state.iterations)
    kind = "accepted" if branch.champion and accepted else _KINDS.get(branch.status, "no time")
    # Side by side around their iteration, so that equal times do not hide each other.
    offset = 0.5 * ((index + 0.5) / len(siblings) - 0.5)
    said = fmt.duration(branch.median_ms) if branch.median_ms else branch.reason or branch.status
    return {
        "x": branch.iteration + offset,
        "ms": branch.median_ms,
        "branch": branch.name,
        "kind": kind,
        "link": f"#iter{branch.iteration}-{branch.name}",
        "says": f"iteration {branch.iteration}, {branch.name}: {branch.status}\n{fmt.shortened(said, 160)}",
    }


def _drift(state: State) -> Spec | None:
    values = [
        {
            "iteration": r.iteration,
            "axis": axis,
            "headroom": share,
            "says": f"iteration {r.iteration}, {axis}: headroom {fmt.share(share)}",
        }
        for r in state.roofline_history
        for axis, share in zip(AXES, (r.compute, r.memory, r.latency), strict=True)
    ]
    if not values:
        return None
    x = {"field": "iteration", "type": "ordinal", "title": "iteration", "axis": {"labelAngle": 0}, "sort": None}
    x["scale"] = {"padding": 0.35}
    y = {
        "field": "headroom",
        "type": "quantitative",
        "title": "headroom",
        "scale": {"domain": [0, 1]},
        "axis": {"tickCount": 5},
    }
    colours = {"domain": list(AXES), "range": list(AXIS_COLOURS)}
    shapes = {"domain": list(AXES), "range": ["square", "circle", "triangle-up"]}
    colour = {"field": "axis", "type": "nominal", "scale": colours}
    shape = {"field": "axis", "type": "nominal", "scale": shapes}
    return {
        "height": 220,
        "data": {"values": values},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 2, **_QUIET}, "encoding": {"x": x, "y": y, "color": colour}},
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "description": {"field": "says"}},
            },
        ],
    }
