"""The charts of a run, each by the anchor of the section that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.roofline import find_roofline
from agent.report.roofline_plot import roofline_spec
from agent.report.timeline import timeline_spec
from agent.report.vega import AXIS_COLOURS, Chart, Spec, draw, scale_of
from agent.report.view import baseline_and_best_ms, last
from agent.report.waterfall import Step, is_zoomed, waterfall_spec, waterfalls
from agent.state import State
from profiling.findings import AXES

_QUIET = {"aria": False}
_WIDTHS = {"times": 500}
_TIMELINE = "Best time after each iteration (line) and the time of every branch (marks)"


def draw_charts(state: State, events: Sequence[AnyEvent]) -> Mapping[str, tuple[Chart, ...]]:
    """Charts by anchor; a chart without data is left out."""
    drawn: dict[str, tuple[Chart | None, ...]] = {
        "times": (
            _drawn("times", "Time of one call; the floor is the least that this device allows", _times(state, events)),
        ),
        "timeline": (_drawn("timeline", _TIMELINE, timeline_spec(state)),),
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
        ("best", best_ms if state.best_from != "baseline" else None, "best"),
        ("floor", floor.floor_ms if floor else None, "floor"),
    ]
    if not baseline_ms:
        return None
    values: list[Spec] = [{"name": n, "ms": ms, "kind": k, "text": fmt.duration(ms)} for n, ms, k in rows if ms]
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
    x: Spec = {"field": "iteration", "type": "ordinal", "title": "iteration", "axis": {"labelAngle": 0}, "sort": None}
    x["scale"] = {"padding": 0.35}
    y: Spec = {
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
