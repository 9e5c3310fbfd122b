"""Where the gain of an iteration came from: from the time before, method by method, down to the champion's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.vega import PLAIN_NUMBERS, Spec, scale_of
from agent.report.view import comparison_of, of_type
from profiling.findings import Comparison

_COLOURS = {
    "time": "var(--idle)",
    "effective": "var(--good)",
    "ineffective": "var(--muted)",
    "implementation failed": "var(--bad)",
    "interaction": "var(--memory)",
    "unverified": "var(--unsure)",
    "not attributed": "var(--faint)",
}
_STEP = 28
_ZOOM = 0.75
_LABELS, _PHONE_LABELS = 232, 112  # pixels, the same in each iteration, so that bars begin below each other


@dataclass(frozen=True, slots=True)
class Step:
    """One bar, ms: from `begin` to `end`; `low` and `high` are the interval of where it ends, None where unknown."""

    label: str
    kind: str
    begin: float
    end: float
    low: float | None
    high: float | None
    says: str


def waterfall(event: ev.Attributed, compared: Comparison) -> tuple[Step, ...]:
    """The bars of one iteration, top down.

    A method's bar is its own attribution, measured by leaving it out alone. What the sum of them leaves, or takes
    twice, is a bar of its own and never spread over the methods.
    """
    at = compared.a_ms
    steps = [Step("best before", "time", 0.0, at, None, None, f"best before: {fmt.duration(at)}")]
    for row in event.rows:
        if row.attribution_ms is None:
            continue
        end = at - row.attribution_ms
        # The method's interval hangs on the time it ends at: more saved is further left.
        low = None if row.high_ms is None else at - row.high_ms
        high = None if row.low_ms is None else at - row.low_ms
        kind = row.method_class.replace("_", " ")
        worth = fmt.difference(row.attribution_ms, row.low_ms, row.high_ms)
        says = f"{row.method}: {kind}\nwithout it {worth}\nmachine code: {row.presence}"
        steps.append(Step(row.method, kind, at, end, low, high, says))
        at = end
    if len(steps) == 1:
        return ()
    rest = at - compared.b_ms
    if abs(rest) > 0.01 * max(compared.a_ms, compared.b_ms):
        says = f"{'saved by no method alone' if rest > 0 else 'counted under several methods'}: {fmt.difference(rest)}"
        steps.append(
            Step("not attributed" if rest > 0 else "overlap", "not attributed", at, compared.b_ms, *_NONE, says)
        )
    reached = fmt.duration(compared.b_ms)
    steps.append(Step("champion", "time", 0.0, compared.b_ms, *_NONE, f"champion: {reached}"))
    return tuple(steps)


_NONE = (None, None)


def waterfalls(events: Sequence[AnyEvent]) -> list[tuple[int, tuple[Step, ...]]]:
    """Iteration and bars, of each iteration that has something to show."""
    found = []
    for event in of_type(events, ev.Attributed):
        compared = comparison_of(events, event)
        steps = waterfall(event, compared) if isinstance(compared, Comparison) else ()
        if steps:
            found.append((event.iteration, steps))
    return found


def is_zoomed(steps: Sequence[Step]) -> bool:
    """Whether the changes are so small beside the times that an axis from 0 would hide them."""
    low, high = _reach(steps)
    return low > _ZOOM * high


def _reach(steps: Sequence[Step]) -> tuple[float, float]:
    """The least and the most time of any bar's end or interval, ms."""
    ends = [value for s in steps for value in (s.end, s.low, s.high) if value is not None]
    return min(ends), max(ends)


def waterfall_spec(steps: Sequence[Step], *, phone: bool) -> Spec:
    """The plot of one iteration, for a desk or for a phone."""
    low, high = _reach(steps)
    first = low - 0.15 * (high - low) if is_zoomed(steps) else min(0.0, low)
    # At the right there is room for the text of the longest bar.
    domain = [first, high + (0.55 if phone else 0.2) * (high - first)]
    labels = _PHONE_LABELS if phone else _LABELS
    values = [
        {
            "order": number,
            "row": f"{number} {step.label}",
            "kind": step.kind,
            "begin": max(step.begin, first),
            "end": step.end,
            "low": step.low,
            "high": step.high,
            "right": max(step.begin, step.end, step.high or step.end),
            "says": step.says,
            "text": fmt.duration(step.end) if step.kind == "time" else fmt.difference(step.end - step.begin),
        }
        for number, step in enumerate(steps)
    ]
    y = {
        "field": "row",
        "type": "nominal",
        "title": None,
        "sort": None,
        "axis": {
            "ticks": False,
            "domain": False,
            "labelExpr": "replace(datum.label, /^[0-9]+ /, '')",
            "labelPadding": 8,
            "minExtent": labels,
            "maxExtent": labels,
        },
    }
    x = {
        "type": "quantitative",
        "title": "time of a call (ms)",
        "axis": {"tickCount": 3 if phone else 5, **PLAIN_NUMBERS},
        "scale": {"domain": domain, "nice": False},
    }
    colour = {
        "field": "kind",
        "type": "nominal",
        "scale": scale_of(_COLOURS, [step.kind for step in steps]),
        "legend": None,
    }
    intervals = [v for v in values if v["low"] is not None and v["high"] is not None]
    quiet = {"aria": False}
    whisker = {"type": "rule", "stroke": "var(--text)", "strokeWidth": 1.5, **quiet}
    end = {"type": "tick", "color": "var(--text)", "thickness": 1.5, "height": 9, **quiet}
    links = [{"row": a["row"], "to": b["row"], "at": a["end"]} for a, b in pairwise(values)]
    return {
        "height": {"step": _STEP},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "cornerRadius": 2, "height": 15},
                "encoding": {
                    "y": y,
                    "x": {**x, "field": "begin"},
                    "x2": {"field": "end"},
                    "color": colour,
                    "description": {"field": "says"},
                },
            },
            {
                "data": {"values": links},
                "mark": {"type": "rule", "stroke": "var(--muted)", "strokeDash": [2, 2], **quiet},
                "encoding": {"y": y, "y2": {"field": "to"}, "x": {**x, "field": "at"}},
            },
            {
                "data": {"values": intervals},
                "mark": whisker,
                "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
            },
            *(
                {"data": {"values": intervals}, "mark": end, "encoding": {"y": y, "x": {**x, "field": side}}}
                for side in ("low", "high")
            ),
            {
                "data": {"values": values},
                "mark": {"type": "text", "align": "left", "dx": 7, "fill": "var(--text)", "fontSize": 12, **quiet},
                "encoding": {"y": y, "x": {**x, "field": "right"}, "text": {"field": "text"}},
            },
        ],
    }
