"""The timeline: the best time after each iteration, and every branch with its verdict."""

from __future__ import annotations

from agent.report import fmt
from agent.report.vega import PLAIN_NUMBERS, Spec, logarithmic, scale_of
from agent.state import BranchState, State

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
_MARK = {"type": "point", "filled": True, "size": 85, "opacity": 1}
_LABEL = {"type": "text", "fill": "var(--text)", "fontSize": 12, "aria": False}
_LINE = {"type": "line", "interpolate": "step-after", "stroke": "var(--good)", "strokeWidth": 2, "aria": False}
_SPREAD = 4.0  # of the longest time over the shortest, from where on the axis is logarithmic


def timeline_spec(state: State) -> Spec | None:
    """The plot, None before the baseline is measured."""
    if not state.baseline_ms:
        return None
    points = [_point(state, branch) for branch in state.branches]
    # A forged clock can say 0 ms, which no logarithmic axis holds: such a point has no time worth showing.
    timed = [p for p in points if p["ms"]]
    untimed = [{**p, "kind": "no time"} for p in points if not p["ms"]]
    steps = _steps(state, state.baseline_ms)
    x, y = _axes([*(p["ms"] for p in timed), *(s["ms"] for s in steps)], steps[-1]["x"])
    at = {"x": x, "y": y}
    first = {"data": {"values": steps[:1]}, "encoding": {**at, "description": {"field": "says"}}}
    layers: list[Spec] = [
        {"data": {"values": steps}, "mark": _LINE, "encoding": at},
        {**first, "mark": {**_MARK, "color": "var(--muted)"}},
        {**first, "mark": {**_LABEL, "align": "left", "dx": 8, "dy": -9, "text": "baseline"}},
    ]
    marks = _marks([p["kind"] for p in (*timed, *untimed)])
    accepted = [p for p in timed if p["kind"] == "accepted"]
    named = {**at, "text": {"field": "branch"}}
    above = {"x": x, "y": {"value": 6}, **marks}
    # A layer without data makes Vega draw a legend of infinite height.
    layers += [
        {"data": {"values": values}, "mark": mark, "encoding": encoding}
        for values, mark, encoding in (
            (timed, _MARK, {**at, **marks}),
            (accepted, {**_LABEL, "dy": 16}, named),
            (untimed, {**_MARK, "angle": 45}, above),
        )
        if values
    ]
    return {"height": 300, "layer": layers}


def _steps(state: State, baseline_ms: float) -> list[Spec]:
    """Where the line of the best time turns, from the baseline to the right edge."""
    steps = [{"x": 0.0, "ms": baseline_ms, "says": f"baseline: {fmt.duration(baseline_ms)}"}]
    for line in sorted(state.iterations, key=lambda i: i.iteration):
        accepted_ms = line.champion_ms if line.status == "accepted" else None
        steps.append({"x": float(line.iteration), "ms": accepted_ms or steps[-1]["ms"], "says": ""})
    last_iteration = max([1, *(i.iteration for i in state.iterations), *(b.iteration for b in state.branches)])
    return [*steps, {**steps[-1], "x": last_iteration + 0.5}]


def _axes(times: list[float], right: float) -> tuple[Spec, Spec]:
    if max(times) > _SPREAD * min(times):
        scale, ticks = logarithmic(min(times), max(times))
    else:
        scale, ticks = {"type": "linear", "zero": False}, {"tickCount": 5}
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "iteration (0 is the baseline)",
        "scale": {"domain": [-0.25, right]},
        "axis": {"values": list(range(int(right) + 1)), "format": "d", "grid": False},
    }
    y = {
        "field": "ms",
        "type": "quantitative",
        "title": "time of a call (ms)",
        "scale": {"padding": 18, **scale},
        "axis": {**PLAIN_NUMBERS, **ticks},
    }
    return x, y


def _marks(present: list[str]) -> Spec:
    """How a branch looks, and what it says and leads to."""
    return {
        "color": {"field": "kind", "type": "nominal", "scale": scale_of(_COLOURS, present)},
        "shape": {"field": "kind", "type": "nominal", "scale": scale_of(_SHAPES, present)},
        "description": {"field": "says"},
        "href": {"field": "link"},
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
