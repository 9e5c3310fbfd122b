"""The roofline: measured ceilings, and the path that the best kernel took under them.

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
from agent.report.view import baseline_and_best_ms, last
from agent.state import State
from profiling.ceilings import peak_bytes
from profiling.findings import Ceilings, Profile, Work


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
    """The roofline, None where operations, bytes, ceilings or times are not known."""
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


def bandwidth_rows(state: State, events: Sequence[AnyEvent]) -> tuple[tuple[str, ...], ...]:
    """The path of a task whose operations are not known, by bytes alone.

    Kernel, time, counted traffic, least bytes per second, and what share that is of the measured bandwidth.
    """
    checked, measured = last(events, ev.TaskChecked), last(events, ev.CeilingsMeasured)
    if checked is None or measured is None or not checked.work.bytes:
        return ()
    moved, bandwidth = checked.work.bytes, peak_bytes(measured.ceilings)
    return tuple(
        (
            stop.name,
            fmt.duration(stop.ms),
            fmt.size(stop.traffic),
            fmt.per_second(moved / stop.ms * 1e3, "B/s"),
            fmt.percent(moved / stop.ms * 1e3 / bandwidth),
        )
        for stop in _path(state, events, checked.work)
    )


def roofline_lines(found: Roofline) -> tuple[str, ...]:
    """The plot in words."""
    how = (
        "memory traffic as the profiler counted it"
        if found.counted
        else "the least memory traffic of the task, since none was counted for every kernel"
    )
    return (
        f"Each kernel by its operations per byte ({how}) and its rate, under ceilings measured on this device: "
        f"{fmt.per_second(found.bandwidth, 'B/s')}, {found.own} {fmt.per_second(found.roofs[found.own], 'FLOP/s')}.",
    )


def roofline_rows(found: Roofline) -> tuple[tuple[str, ...], ...]:
    """The path as a table: kernel, time, traffic, operations per byte, rate, share of the roof above it."""
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
