"""The roofline plot: measured ceilings, and the path that the best kernel took under them.

A kernel stands at its operations per byte of memory traffic (across) and its operations per second (up). Traffic is
what the profiler counted between chip and memory; where it counted none, the least that the task must move, so that the
path is a vertical line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.vega import PLAIN_NUMBERS, Spec, logarithmic
from agent.report.view import baseline_and_best_ms, last
from agent.state import State
from profiling.ceilings import peak_bytes
from profiling.types import Ceilings, Profile, Work

# Ceilings drawn beside the task's own: the next ones above it, each clear of the last, so that names do not collide.
_MOST_OTHERS = 2
_CLEAR = 1.4
_PLACES = ("baseline", "iteration")


@dataclass(frozen=True, slots=True)
class Stop:
    """One kernel of the path: name, where it is told of, time in ms, counted memory traffic in bytes or None."""

    name: str
    anchor: str
    ms: float
    traffic: float | None


@dataclass(frozen=True, slots=True)
class Roofline:
    """What the plot shows.

    Attributes:
        stops: the path, baseline first.
        flops, least_bytes: of one call.
        counted: whether `stops` stand at counted traffic.
        bandwidth: measured, bytes per second.
        roofs: measured operations per second by arithmetic.
        own: the arithmetic whose roof holds the task.
    """

    stops: tuple[Stop, ...]
    flops: float
    least_bytes: float
    counted: bool
    bandwidth: float
    roofs: Mapping[str, float]
    own: str

    def intensity(self, stop: Stop) -> float:
        """Operations per byte."""
        return self.flops / (stop.traffic if self.counted and stop.traffic else self.least_bytes)

    def rate(self, stop: Stop) -> float:
        """Operations per second."""
        return self.flops / stop.ms * 1e3

    def share(self, stop: Stop) -> float:
        """Of the roof above it."""
        return self.rate(stop) / min(self.roofs[self.own], self.intensity(stop) * self.bandwidth)


def find_roofline(state: State, events: Sequence[AnyEvent]) -> Roofline | None:
    """The plot's data, None where operations, bytes, ceilings or times are not known."""
    checked, measured = last(events, ev.TaskChecked), last(events, ev.CeilingsMeasured)
    if checked is None or measured is None or not checked.work.flops or not checked.work.bytes:
        return None
    own = _own_roof(events, checked.work, measured.ceilings)
    stops = _path(state, events, checked.work)
    if own is None or not stops:
        return None
    return Roofline(
        stops=stops,
        flops=checked.work.flops,
        least_bytes=checked.work.bytes,
        counted=all(stop.traffic for stop in stops),
        bandwidth=peak_bytes(measured.ceilings),
        roofs=measured.ceilings.flops,
        own=own,
    )


def _own_roof(events: Sequence[AnyEvent], work: Work, ceilings: Ceilings) -> str | None:
    """The arithmetic of the floor: as logged, else the one whose floor it is, else float32."""
    found = last(events, ev.FloorFound)
    if found is not None and found.arithmetic in ceilings.flops:
        return found.arithmetic
    for name, peak in ceilings.flops.items():
        if found is not None and found.floor_ms and work.flops:
            of_floor = work.flops / peak * 1e3 / found.floor_ms
            if abs(of_floor - 1) < 1e-6:
                return name
    return next((name for name in ("float32", *ceilings.flops) if name in ceilings.flops), None)


def _path(state: State, events: Sequence[AnyEvent], work: Work) -> tuple[Stop, ...]:
    """Baseline and each kernel that became the best, with the traffic of the profile taken while it was the best."""
    baseline_ms, best_ms = baseline_and_best_ms(state, events)
    if not baseline_ms:
        return ()
    traffic = _traffic_by_kernel(events, work)
    stops = [Stop("baseline", "branches", baseline_ms, traffic.get(0))]
    for line in sorted(state.iterations, key=lambda i: i.iteration):
        if line.status == "accepted" and line.champion_ms:
            anchor = f"iter{line.iteration}-{line.champion}"
            stops.append(Stop(f"iteration {line.iteration}", anchor, line.champion_ms, traffic.get(line.iteration)))
    if len(stops) > 1 and best_ms and state.best_from != "baseline":
        newest = stops[-1]
        stops[-1] = Stop(newest.name, newest.anchor, best_ms, newest.traffic)
    return tuple(stops)


def _traffic_by_kernel(events: Sequence[AnyEvent], work: Work) -> dict[int, float]:
    """Counted bytes of the best kernel by the iteration that brought it, 0 for the baseline."""
    found: dict[int, float] = {}
    current = 0
    for event in events:
        if isinstance(event, ev.ChampionDecided) and event.accepted:
            current = event.iteration
        elif isinstance(event, ev.Profiled):
            counted = counted_bytes(event.profile, work)
            if counted:
                found.setdefault(current, counted)
    return found


def counted_bytes(profile: Profile, work: Work) -> float | None:
    """Bytes between chip and memory in one call, None where nothing counted them."""
    read, written = profile.value("dram__bytes_read.sum"), profile.value("dram__bytes_write.sum")
    if read is not None and written is not None:
        return read + written
    excess = profile.value("llc_miss_bytes_ratio")
    return excess * work.bytes if excess and work.bytes else None


def roofline_lines(found: Roofline | None) -> tuple[str, ...]:
    """The plot in words."""
    if found is None:
        return ()
    how = (
        "memory traffic as the profiler counted it"
        if found.counted
        else "the least memory traffic of the task, since none was counted for every kernel"
    )
    return (
        f"Each kernel by its operations per byte ({how}) and its rate, under ceilings measured on this device: "
        f"{fmt.per_second(found.bandwidth, 'B/s')}, {found.own} {fmt.per_second(found.roofs[found.own], 'FLOP/s')}.",
    )


def roofline_rows(found: Roofline | None) -> tuple[tuple[str, ...], ...]:
    """The path as a table: kernel, time, traffic, operations per byte, rate, share of the roof above it."""
    if found is None:
        return ()
    return tuple(
        (
            stop.name,
            fmt.duration(stop.ms),
            fmt.size(stop.traffic),
            fmt.significant(found.intensity(stop), 3),
            fmt.per_second(found.rate(stop), "FLOP/s"),
            fmt.percent(found.share(stop)),
        )
        for stop in found.stops
    )


def _shown_roofs(found: Roofline) -> dict[str, float]:
    shown = {found.own: found.roofs[found.own]}
    for name, peak in sorted(found.roofs.items(), key=lambda roof: roof[1]):
        if peak > _CLEAR * max(shown.values()) and len(shown) <= _MOST_OTHERS and not name.startswith("int"):
            shown[name] = peak
    return shown


def roofline_spec(found: Roofline) -> Spec:
    """The plot."""
    own = found.roofs[found.own]
    ridge = own / found.bandwidth
    across = [found.intensity(stop) for stop in found.stops]
    rates = [found.rate(stop) / 1e9 for stop in found.stops]
    shown = {name: peak / 1e9 for name, peak in _shown_roofs(found).items()}
    x_low, x_high = min(*across, ridge) / 4, max(*across, ridge) * 6
    y_low, y_high = min(*rates, own / 1e9) / 3, max(*rates, *shown.values()) * 1.3
    x_scale, x_axis = logarithmic(x_low, x_high)
    y_scale, y_axis = logarithmic(y_low, y_high)
    x_end = x_scale["domain"][1]
    slope = found.bandwidth / 1e9
    x_start = max(x_scale["domain"][0], y_scale["domain"][0] / slope)
    memory = [{"x": x_start, "y": slope * x_start}, {"x": ridge, "y": own / 1e9}]
    roofs = [
        {
            "name": name,
            "y": peak,
            "x": peak / slope,
            "x2": x_end,
            "label": f"{name} {fmt.per_second(peak * 1e9, 'FLOP/s')}",
        }
        for name, peak in shown.items()
    ]
    beyond = [{"x": ridge, "y": own / 1e9}, {"x": max(r["x"] for r in roofs), "y": max(shown.values())}]
    x = {"field": "x", "type": "quantitative", "scale": x_scale, "title": "operations per byte of memory traffic"}
    x["axis"] = {**x_axis, **PLAIN_NUMBERS, "grid": False}
    y = {"field": "y", "type": "quantitative", "scale": y_scale, "title": "GFLOP/s", "axis": {**y_axis, "format": "~s"}}
    points = [
        {
            "order": number,
            "x": found.intensity(stop),
            "y": found.rate(stop) / 1e9,
            "label": stop.name if number == 0 else stop.name.removeprefix("iteration "),
            "link": f"#{stop.anchor}",
            "kind": _PLACES[number > 0],
            "says": f"{stop.name}: {fmt.duration(stop.ms)}\n{fmt.per_second(found.rate(stop), 'FLOP/s')} at "
            f"{fmt.significant(found.intensity(stop), 3)} operations per byte\n"
            f"{fmt.percent(found.share(stop))} of the roof above it",
        }
        for number, stop in enumerate(found.stops)
    ]
    quiet = {"aria": False}
    roof = {"type": "line", "stroke": "var(--text)", "strokeWidth": 1.5, "clip": True, **quiet}
    own_roof = [r for r in roofs if r["name"] == found.own]
    others = [r for r in roofs if r["name"] != found.own]
    label = {"type": "text", "align": "right", "dy": -7, "dx": -2, "fontSize": 11, **quiet}
    layers: list[Spec] = [
        {"data": {"values": memory}, "mark": roof, "encoding": {"x": x, "y": y}},
        {
            "data": {"values": own_roof},
            "mark": {"type": "rule", "stroke": "var(--text)", "strokeWidth": 1.5, **quiet},
            "encoding": {"x": x, "x2": {"field": "x2"}, "y": y},
        },
        {
            "data": {"values": own_roof},
            "mark": {**label, "fill": "var(--text)"},
            "encoding": {"x": {**x, "field": "x2"}, "y": y, "text": {"field": "label"}},
        },
        {
            "data": {"values": memory[:1]},
            "mark": {
                "type": "text",
                "align": "left",
                "dx": 10,
                "dy": 4,
                "fontSize": 11,
                "fill": "var(--text)",
                "text": f"memory {fmt.per_second(found.bandwidth, 'B/s')}",
                **quiet,
            },
            "encoding": {"x": x, "y": y},
        },
    ]
    if others:
        thin = {"stroke": "var(--idle)", "strokeDash": [4, 3], **quiet}
        layers += [
            {"data": {"values": beyond}, "mark": {**roof, **thin, "strokeWidth": 1}, "encoding": {"x": x, "y": y}},
            {
                "data": {"values": others},
                "mark": {"type": "rule", **thin},
                "encoding": {"x": x, "x2": {"field": "x2"}, "y": y},
            },
            {
                "data": {"values": others},
                "mark": {**label, "fill": "var(--muted)"},
                "encoding": {"x": {**x, "field": "x2"}, "y": y, "text": {"field": "label"}},
            },
        ]
    if found.counted:
        least = [{"x": found.flops / found.least_bytes}]
        layers.append(
            {
                "data": {"values": least},
                "mark": {"type": "rule", "stroke": "var(--memory)", "strokeDash": [2, 3], **quiet},
                "encoding": {"x": x},
            }
        )
        note = {
            "type": "text",
            "align": "right",
            "dx": -5,
            "fill": "var(--memory)",
            "fontSize": 11,
            "text": "least traffic",
        }
        low = {**x, "field": "x"}
        layers.append({"data": {"values": least}, "mark": {**note, "y": 332, **quiet}, "encoding": {"x": low}})
    layers += [
        {
            "data": {"values": points},
            "mark": {"type": "line", "stroke": "var(--good)", "strokeWidth": 2, "strokeDash": [5, 3], **quiet},
            "encoding": {"x": x, "y": y, "order": {"field": "order"}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "stroke": "var(--card)"},
            "encoding": {
                "x": x,
                "y": y,
                "color": {
                    "field": "kind",
                    "type": "nominal",
                    "legend": None,
                    "scale": {"domain": list(_PLACES), "range": ["var(--muted)", "var(--good)"]},
                },
                "description": {"field": "says"},
                "href": {"field": "link"},
            },
        },
    ]
    name = {"type": "text", "baseline": "middle", "fill": "var(--text)", "fontSize": 12, **quiet}
    layers += [
        {
            "data": {"values": points},
            "transform": [{"filter": f"datum.order % 2 == {side}"}],
            "mark": {**name, "align": align, "dx": dx},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        }
        # To either side in turn: names of kernels that are close must not cover each other.
        for side, align, dx in ((0, "left", 10), (1, "right", -10))
    ]
    return {"height": 340, "layer": layers}
