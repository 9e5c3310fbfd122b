"""The roofline, drawn."""

from __future__ import annotations

import math

from agent.report import fmt
from agent.report.roofline import Roofline
from agent.report.vega import PLAIN_NUMBERS, Spec, logarithmic

# Ceilings drawn beside the task's own: the next ones above it, each clear of the last, so that names do not collide.
_MOST_OTHERS = 2
_CLEAR = 1.4
_HEIGHT = 340
_EDGE = 0.8  # of the way along the axis; beyond it a name has no room at the right
_PLACES = ("baseline", "iteration")
_QUIET = {"aria": False}
_TEXT = {"type": "text", "fontSize": 11, "fill": "var(--text)", **_QUIET}
_FIRM = {"stroke": "var(--text)", "strokeWidth": 1.5, "clip": True, **_QUIET}
_THIN = {"stroke": "var(--idle)", "strokeWidth": 1, "strokeDash": [4, 3], "clip": True, **_QUIET}


def roofline_spec(found: Roofline) -> Spec:
    """The plot. Rates in it are in billions per second."""
    shown = {name: peak / 1e9 for name, peak in _shown_roofs(found).items()}
    x, y = _axes(found, shown)
    layers = [*_roofs(found, shown, x, y), *(_least_traffic(found, x) if found.counted else ()), *_path(found, x, y)]
    return {"height": _HEIGHT, "layer": layers}


def _shown_roofs(found: Roofline) -> dict[str, float]:
    shown = {found.own: found.roofs[found.own]}
    for name, peak in sorted(found.roofs.items(), key=lambda roof: roof[1]):
        if peak > _CLEAR * max(shown.values()) and len(shown) <= _MOST_OTHERS and not name.startswith("int"):
            shown[name] = peak
    return shown


def _axes(found: Roofline, shown: dict[str, float]) -> tuple[Spec, Spec]:
    """Room for the whole path, for the corner of the task's own roof, and where traffic was counted for the least."""
    ridge = found.roofs[found.own] / found.bandwidth
    least = found.flops / found.least_bytes
    across = [ridge, least, *(found.intensity(stop) for stop in found.stops)]
    rates = [found.rate(stop) / 1e9 for stop in found.stops]
    x_scale, x_axis = logarithmic(min(across) / 3, max(across) * 1.5)
    y_scale, y_axis = logarithmic(min(*rates, shown[found.own]) / 3, max(*rates, *shown.values()) * 1.3)
    x = {"field": "x", "type": "quantitative", "scale": x_scale, "title": "operations per byte of memory traffic"}
    y = {"field": "y", "type": "quantitative", "scale": y_scale, "title": "GFLOP/s"}
    x["axis"] = {**x_axis, **PLAIN_NUMBERS, "grid": False}
    y["axis"] = {**y_axis, "format": "~s"}
    return x, y


def _roofs(found: Roofline, shown: dict[str, float], x: Spec, y: Spec) -> list[Spec]:
    """Memory's slope up to each flat roof; the task's own is firm, the others thin."""
    slope = found.bandwidth / 1e9
    begin = max(x["scale"]["domain"][0], y["scale"]["domain"][0] / slope)
    end = x["scale"]["domain"][1]
    memory = {**_TEXT, "align": "left", "dx": 12, "dy": 4, "text": f"memory {fmt.per_second(found.bandwidth, 'B/s')}"}
    layers: list[Spec] = []
    # The thin ones first, so that the firm one lies over their common slope.
    for name, peak in reversed(shown.items()):
        own = name == found.own
        line = [{"x": begin, "y": slope * begin}, {"x": peak / slope, "y": peak}, {"x": end, "y": peak}]
        label = {
            **_TEXT,
            "align": "right",
            "dx": -2,
            "dy": -7,
            "text": f"{name} {fmt.per_second(peak * 1e9, 'FLOP/s')}",
        }
        label["fill"] = "var(--text)" if own else "var(--muted)"
        style = _FIRM if own else _THIN
        layers += [
            {"data": {"values": line}, "mark": {"type": "line", **style}, "encoding": {"x": x, "y": y}},
            {"data": {"values": line[-1:]}, "mark": label, "encoding": {"x": x, "y": y}},
        ]
    start = [{"x": begin, "y": slope * begin}]
    return [*layers, {"data": {"values": start}, "mark": memory, "encoding": {"x": x, "y": y}}]


def _least_traffic(found: Roofline, x: Spec) -> list[Spec]:
    """Where a kernel stands that moves no byte twice."""
    data = {"values": [{"x": found.flops / found.least_bytes}]}
    line = {"type": "rule", "stroke": "var(--memory)", "strokeDash": [2, 3], **_QUIET}
    text = {**_TEXT, "align": "right", "dx": -5, "y": _HEIGHT - 8, "fill": "var(--memory)", "text": "least traffic"}
    return [{"data": data, "mark": line, "encoding": {"x": x}}, {"data": data, "mark": text, "encoding": {"x": x}}]


def _path(found: Roofline, x: Spec, y: Spec) -> list[Spec]:
    """The kernels, joined in the order in which they became the best."""
    points: list[Spec] = [
        {
            "order": number,
            "x": found.intensity(stop),
            "y": found.rate(stop) / 1e9,
            "label": stop.name.removeprefix("iteration "),
            "link": f"#{stop.anchor}",
            "kind": _PLACES[number > 0],
            "says": f"{stop.name}: {fmt.duration(stop.ms)}\n{fmt.per_second(found.rate(stop), 'FLOP/s')} at "
            f"{fmt.significant(found.intensity(stop), 3)} operations per byte\n"
            f"{fmt.percent(found.share(stop))} of the roof above it",
        }
        for number, stop in enumerate(found.stops)
    ]
    data = {"values": points}
    line = {"type": "line", "stroke": "var(--good)", "strokeWidth": 2, "strokeDash": [5, 3], **_QUIET}
    mark = {"type": "point", "filled": True, "size": 90, "opacity": 1, "stroke": "var(--card)"}
    scale = {"domain": list(_PLACES), "range": ["var(--muted)", "var(--good)"]}
    marks = {
        "color": {"field": "kind", "type": "nominal", "legend": None, "scale": scale},
        "description": {"field": "says"},
        "href": {"field": "link"},
    }
    layers: list[Spec] = [
        {"data": data, "mark": line, "encoding": {"x": x, "y": y, "order": {"field": "order"}}},
        {"data": data, "mark": mark, "encoding": {"x": x, "y": y, **marks}},
    ]
    name = {**_TEXT, "fontSize": 12, "baseline": "middle"}
    # To either side in turn, since names of kernels that are close must not cover each other; but not over the edge.
    low, high = (math.log(end) for end in x["scale"]["domain"])
    edge = math.exp(low + _EDGE * (high - low))
    before = [point for point in points if point["order"] % 2 or point["x"] > edge]
    for align, dx, labelled in (("right", -10, before), ("left", 10, [p for p in points if p not in before])):
        if labelled:
            values, label = {"values": labelled}, {**name, "align": align, "dx": dx}
            layers.append({"data": values, "mark": label, "encoding": {"x": x, "y": y, "text": {"field": "label"}}})
    return layers
