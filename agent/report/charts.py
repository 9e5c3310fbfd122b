"""Charts as inline SVG, drawn by Vega-Lite (offline, no script in the page).

Colours are CSS variables of the page, so that one drawing serves light and dark. Each chart is drawn twice, for wide
and for narrow screens: a drawing scaled down to a phone could not be read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent import events as ev
from agent.events import AnyEvent
from agent.report.view import of_type
from agent.state import State
from profiling.types import AXES

_WIDE, _NARROW = 900, 340
_AXIS_COLOURS = ("var(--compute)", "var(--memory)", "var(--latency)")
_CLASS_COLOURS = {
    "effective": "var(--good)",
    "ineffective": "var(--muted)",
    "implementation failed": "var(--bad)",
    "interaction": "var(--memory)",
    "unverified": "var(--unsure)",
}
_VERDICT_COLOURS = {
    "champion": "var(--good)",
    "correct": "var(--compute)",
    "suspect": "var(--unsure)",
    "unverified": "var(--unsure)",
    "wrong or not built": "var(--bad)",
}
_CONFIG: Mapping[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    # Room for fonts wider than the one that Vega measured with; the page lets labels run into it.
    "padding": {"left": 28, "right": 8, "top": 5, "bottom": 5},
    "axis": {
        "labelColor": "var(--text)",
        "titleColor": "var(--muted)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 260,
    },
    "legend": {
        "labelColor": "var(--text)",
        "labelFontSize": 12,
        "title": None,
        "orient": "top",
        "columnPadding": 32,
        "labelLimit": 260,
    },
}

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart, drawn for two widths. `caption` says what it shows, also to a screen reader."""

    caption: str
    wide: str
    narrow: str


def draw_charts(state: State, events: Sequence[AnyEvent]) -> Mapping[str, Chart]:
    """Charts by the anchor of the section that they belong to; a chart without data is left out."""
    specs = {
        "timeline": (
            "Time of every branch; the line is the best kernel, crosses at the top have no time",
            _timeline(state),
        ),
        "drift": ("Headroom per axis as each iteration began", _drift(state)),
        "attribution": ("What each method is worth, with its 95% interval", _attribution(events)),
    }
    return {
        anchor: Chart(caption, _svg(f"{anchor}-wide", spec, _WIDE), _svg(f"{anchor}-narrow", _for_phone(spec), _NARROW))
        for anchor, (caption, spec) in specs.items()
        if spec is not None
    }


def _svg(name: str, spec: Spec, width: int) -> str:
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _CONFIG,
        **spec,
    }
    # Imported here: a library of some 80 MB that only a report needs.
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    # Inside HTML no namespaces are needed; without them the page names no address at all.
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg, count=2)
    # Vega numbers its clip paths; two drawings in one page must not share a number.
    return re.sub(r'(id="|url\(#)(?=clip\d)', rf"\g<1>{name}-", svg)


def _for_phone(spec: Spec) -> Spec:
    axis = {**_CONFIG["axis"], "labelLimit": 110}
    legend = {**_CONFIG["legend"], "columns": 2, "columnPadding": 12, "offset": 8}
    padding = {"left": 16, "right": 2, "top": 5, "bottom": 5}
    return {**spec, "config": {**_CONFIG, "axis": axis, "legend": legend, "padding": padding}}


def _colour(colours: Mapping[str, str], present: Sequence[str]) -> Spec:
    """A colour scale that names in its legend only what is in the data."""
    shown = [name for name in colours if name in present]
    return {"domain": shown, "range": [colours[name] for name in shown]}


def _timeline(state: State) -> Spec | None:
    if not state.baseline_ms:
        return None
    points = [_point(state, b.iteration, b.name) for b in state.branches]
    # A forged clock can say 0 ms, which no logarithmic axis holds: such a point has no time worth showing.
    timed = [p for p in points if p["ms"]]
    untimed = [p for p in points if not p["ms"]]
    steps = [{"x": 0.0, "ms": state.baseline_ms}]
    for line in sorted(state.iterations, key=lambda i: i.iteration):
        accepted_ms = line.champion_ms if line.status == "accepted" else None
        steps.append({"x": float(line.iteration), "ms": accepted_ms or steps[-1]["ms"]})
    times = [p["ms"] for p in timed] + [s["ms"] for s in steps]
    wide_range = max(times) > 4 * min(times)
    scale = {"type": "log", "nice": False} if wide_range else {"type": "linear", "zero": False}
    ticks = {"values": _log_ticks(min(times), max(times))} if wide_range else {"tickCount": 5}
    colour = {
        "field": "kind",
        "type": "nominal",
        "scale": _colour(_VERDICT_COLOURS, [p["kind"] for p in points]),
    }
    last_iteration = max([1, *(int(s["x"]) for s in steps), *(b.iteration for b in state.branches)])
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "iteration (0 is the baseline)",
        "scale": {"domain": [-0.2, last_iteration + 0.5]},
        "axis": {"values": list(range(last_iteration + 1)), "format": "d", "grid": False},
    }
    y = {
        "field": "ms",
        "type": "quantitative",
        "title": "time (ms)",
        "scale": {**scale, "padding": 16},
        "axis": {"format": "~g", **ticks},
    }
    rejected_y = {"value": 6}
    return {
        "height": 300,
        "layer": [
            {
                "data": {"values": steps},
                "mark": {"type": "line", "interpolate": "step-after", "stroke": "var(--good)", "strokeWidth": 2},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": steps[:1]},
                "mark": {"type": "text", "align": "left", "dx": 6, "dy": -8, "fill": "var(--text)", "text": "baseline"},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": timed},
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "data": {"values": [p for p in timed if p["kind"] == "champion"]},
                "mark": {"type": "text", "dy": 14, "fill": "var(--text)"},
                "encoding": {"x": x, "y": y, "text": {"field": "branch"}},
            },
            {
                "data": {"values": untimed},
                "mark": {"type": "point", "shape": "cross", "angle": 45, "filled": True, "size": 70, "opacity": 1},
                "encoding": {"x": x, "y": rejected_y, "color": colour},
            },
        ],
    }


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 of each decade, or decades alone where those would crowd the axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    shown = [t for t in ticks if low * 0.8 <= t <= high * 1.25]
    return shown if len(shown) <= 8 else [float(f"1e{decade}") for decade in decades]


def _point(state: State, iteration: int, name: str) -> Spec:
    siblings = [b for b in state.branches if b.iteration == iteration]
    index = [b.name for b in siblings].index(name)
    branch = siblings[index]
    kinds = {"pass": "correct", "suspect": "suspect", "unverified": "unverified"}
    kind = "champion" if branch.champion else kinds.get(branch.status, "wrong or not built")
    # Side by side around their iteration, so that equal times do not hide each other.
    offset = 0.5 * ((index + 0.5) / len(siblings) - 0.5)
    return {"x": iteration + offset, "ms": branch.median_ms, "branch": name, "kind": kind}


def _drift(state: State) -> Spec | None:
    values = [
        {"iteration": str(r.iteration), "axis": axis, "headroom": headroom}
        for r in state.roofline_history
        for axis, headroom in zip(AXES, (r.compute, r.memory, r.latency), strict=True)
    ]
    if not values:
        return None
    x = {"field": "iteration", "type": "ordinal", "title": "iteration", "axis": {"labelAngle": 0}, "sort": None}
    offset = {"field": "axis", "sort": list(AXES)}
    y = {"field": "headroom", "type": "quantitative", "title": "headroom", "scale": {"domain": [0, 1]}}
    colour = {"field": "axis", "type": "nominal", "scale": {"domain": list(AXES), "range": list(_AXIS_COLOURS)}}
    return {
        "height": 220,
        "data": {"values": values},
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {"x": x, "xOffset": offset, "y": y, "color": colour},
            },
            {
                "mark": {"type": "text", "dy": -7, "fill": "var(--text)", "fontSize": 11},
                "encoding": {"x": x, "xOffset": offset, "y": y, "text": {"field": "headroom", "format": ".2f"}},
            },
        ],
    }


def _attribution(events: Sequence[AnyEvent]) -> Spec | None:
    values = [
        {
            "method": f"{row.method} ({event.iteration})",
            "ms": row.attribution_ms,
            "low": row.low_ms,
            "high": row.high_ms,
            "kind": row.method_class.replace("_", " "),
        }
        for event in of_type(events, ev.Attributed)
        for row in event.rows
        if row.attribution_ms is not None
    ]
    if not values:
        return None
    y = {"field": "method", "type": "nominal", "title": None, "sort": None, "axis": {"ticks": False, "domain": False}}
    x = {"field": "ms", "type": "quantitative", "title": "ms (method, iteration in brackets)", "axis": {"tickCount": 5}}
    scale = _colour(_CLASS_COLOURS, [str(v["kind"]) for v in values])
    intervals = [v for v in values if v["low"] is not None and v["high"] is not None]
    return {
        "height": {"step": 30},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "cornerRadiusEnd": 2, "height": 16},
                "encoding": {"y": y, "x": x, "color": {"field": "kind", "type": "nominal", "scale": scale}},
            },
            {
                "data": {"values": intervals},
                "mark": {"type": "rule", "stroke": "var(--text)", "strokeWidth": 1.5},
                "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
            },
            *(
                {
                    "data": {"values": intervals},
                    "mark": {"type": "tick", "color": "var(--text)", "thickness": 1.5, "height": 9},
                    "encoding": {"y": y, "x": {**x, "field": end}},
                }
                for end in ("low", "high")
            ),
        ],
    }
