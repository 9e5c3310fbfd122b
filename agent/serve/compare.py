"""Two runs side by side: what came of them, when, by what, from which settings, and what their best kernels share."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent import events as ev
from agent.events import AnyEvent
from agent.report import fmt
from agent.report.vega import Chart, Spec, draw, logarithmic
from agent.serve.catalog import RunView
from agent.serve.files import read_inside
from agent.state import MethodState, State
from agent.watching.follow import Follower
from agent.watching.limits import read_config
from backends.types import Rejected

_LARGEST_SOURCE = 1 << 20
_MOST_LINES = 4000
_CONTEXT = 3
_SECRET = re.compile(r"(api_key|password|secret|token)(_command)?$", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")
_CLASSES = ("effective", "interaction", "ineffective", "implementation_failed", "unverified")


@dataclass(frozen=True, slots=True)
class Row:
    """One thing of both runs. `differs` where the two texts are not the same."""

    label: str
    a: str
    b: str

    @property
    def differs(self) -> bool:
        """Whether it is worth looking at."""
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of the diff and how it is coloured."""

    kind: Literal["added", "removed", "hunk", "same"]
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole page.

    Attributes:
        cautions: why the two must not be compared by their times, or what is missing.
        figures: by label.
        chart: the best kernel over working time; None without any time.
        methods: attribution by method.
        config: settings that differ.
        diff: from A's best kernel to B's; None where a kernel is missing, empty where they are the same.
    """

    a: RunView
    b: RunView
    cautions: tuple[str, ...]
    figures: tuple[Row, ...]
    chart: Chart | None
    methods: tuple[Row, ...]
    config: tuple[Row, ...]
    diff: tuple[DiffLine, ...] | None


def compare(root: Path, a: RunView, b: RunView) -> Comparison:
    """Compare two runs beneath `root`, as far as they have come."""
    return Comparison(
        a=a,
        b=b,
        cautions=tuple(_cautions(a, b)),
        figures=_figures(a, b),
        chart=_chart(a, b),
        methods=tuple(_methods(a.state, b.state)),
        config=tuple(config_rows(read_config(a.path), read_config(b.path))),
        diff=_diff(_best_source(root, a), _best_source(root, b)),
    )


def _cautions(a: RunView, b: RunView) -> Iterator[str]:
    if a.state.task != b.state.task:
        tasks = f"{a.state.task or fmt.MISSING}, {b.state.task or fmt.MISSING}"
        yield f"These are two tasks ({tasks}): only their speedups can be compared."
    if a.device != b.device:
        devices = f"{a.device or fmt.MISSING}, {b.device or fmt.MISSING}"
        yield f"They were measured on different devices ({devices}): only their speedups can be compared."
    for view in (a, b):
        if view.condition != "finished":
            yield f"{view.name} is not finished ({view.condition})."


def _figures(a: RunView, b: RunView) -> tuple[Row, ...]:
    def row(label: str, show: Callable[[RunView], str]) -> Row:
        return Row(label, show(a), show(b))

    return (
        row(
            "speedup over baseline", lambda v: fmt.speedup(v.state.speedup, *(v.state.speedup_interval or (None, None)))
        ),
        row("speedup over reference", lambda v: fmt.speedup(v.state.speedup_over_reference)),
        row("baseline", lambda v: fmt.duration(v.state.baseline_ms)),
        row("best", lambda v: fmt.duration(v.state.best_ms)),
        row("best from", lambda v: v.state.best_from if v.state.best_ms else fmt.MISSING),
        row("A/A spread", lambda v: fmt.percent(v.state.aa_spread)),
        row("iterations", lambda v: str(len(v.state.iterations))),
        row("branches, right", lambda v: _branch_count(v.state)),
        row("working time", lambda v: fmt.wall(v.state.elapsed_s)),
        row("cost", lambda v: fmt.dollars(v.state.cost.usd)),
        row(
            "status",
            lambda v: " ".join(filter(None, (v.condition, v.state.stop_reason and f"({v.state.stop_reason})"))),
        ),
        row("task", lambda v: v.state.task or fmt.MISSING),
        row("backend", lambda v: v.state.backend or fmt.MISSING),
        row("model", lambda v: " ".join((v.started.provider, v.started.model)).strip() if v.started else fmt.MISSING),
        row("device", lambda v: v.device or fmt.MISSING),
    )


def _branch_count(state: State) -> str:
    return f"{sum(b.status == 'pass' for b in state.branches)} of {len(state.branches)}"


def _methods(a: State, b: State) -> Iterator[Row]:
    """Each method's worth in both runs; a method tried in several iterations is told for each."""
    of_a, of_b = _by_method(a), _by_method(b)
    for method in dict.fromkeys([*of_a, *of_b]):
        yield Row(method, of_a.get(method, fmt.MISSING), of_b.get(method, fmt.MISSING))


def _by_method(state: State) -> dict[str, str]:
    rows: list[MethodState] = [row for name in _CLASSES for row in getattr(state, f"{name}_methods")]
    found: dict[str, str] = {}
    for row in rows:
        text = f"{row.method_class.replace('_', ' ')} {fmt.difference(row.attribution_ms, row.low_ms, row.high_ms)}"
        text = f"iteration {row.iteration}: {text}"
        found[row.method] = f"{found[row.method]}; {text}" if row.method in found else text
    return found


def config_rows(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Row]:
    """Settings that differ, by key; what is secret shows as `(set)`, and an address without its password."""
    flat_a, flat_b = dict(_flat(a, "")), dict(_flat(b, ""))
    for key in sorted({*flat_a, *flat_b}):
        if flat_a.get(key) != flat_b.get(key):
            yield Row(key, *(_shown(key, flat.get(key)) for flat in (flat_a, flat_b)))


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "not set"
    if _SECRET.search(key.rpartition(".")[2]):
        return "(set)"
    return _IN_URL.sub("", value if isinstance(value, str) else json.dumps(value, default=str))


def _best_source(root: Path, view: RunView) -> str | None:
    if view.state.best_file is None:
        return None
    content = read_inside(root, view.path / view.state.best_file, _LARGEST_SOURCE)
    return None if content is None else content.decode("utf-8", "replace")


def _diff(a: str | None, b: str | None) -> tuple[DiffLine, ...] | None:
    if a is None or b is None:
        return None
    lines = list(difflib.unified_diff(a.splitlines(), b.splitlines(), lineterm="", n=_CONTEXT))[2:]
    kinds: Mapping[str, Literal["added", "removed", "hunk"]] = {"+": "added", "-": "removed", "@": "hunk"}
    return tuple(DiffLine(kinds.get(line[:1], "same"), line) for line in lines[:_MOST_LINES])


def _chart(a: RunView, b: RunView) -> Chart | None:
    """The best kernel over working time, in time where that can be compared, else in speedup over the own baseline."""
    as_speedup = a.state.task != b.state.task or a.device != b.device
    values = [point for letter, view in (("A", a), ("B", b)) for point in _points(letter, view, as_speedup)]
    if not values:
        return None
    what = "speedup over the own baseline" if as_speedup else "best time, ms"
    heights = [value["y"] for value in values]
    low, high = min(heights), max(heights)
    scale, axis = logarithmic(low, high) if high > 4 * low else ({"zero": False}, {"tickCount": 5})
    runs = {"field": "run", "type": "nominal"}
    colours = {"domain": ["A", "B"], "range": ["var(--compute)", "var(--memory)"]}
    minutes = {"grid": False, "tickCount": 6}
    spec: Spec = {
        "height": 260,
        "data": {"values": values},
        "mark": {"type": "line", "interpolate": "step-after", "point": {"size": 45, "filled": True}, "strokeWidth": 2},
        "encoding": {
            "x": {"field": "minutes", "type": "quantitative", "title": "working time, minutes", "axis": minutes},
            "y": {"field": "y", "type": "quantitative", "title": what, "scale": scale, "axis": axis},
            "color": {**runs, "scale": colours},
            # Where one lies on the other, both are seen.
            "strokeDash": {**runs, "scale": {"domain": ["A", "B"], "range": [[1, 0], [5, 4]]}},
        },
    }
    return draw("compared", f"The best kernel of each run over its working time ({what})", spec)


def _points(letter: str, view: RunView, as_speedup: bool) -> list[dict[str, Any]]:
    steps = _steps(Follower(view.path / "events.jsonl").poll())
    if not steps:
        return []
    base = steps[0][1]
    steps.append((max(view.state.elapsed_s, steps[-1][0]), steps[-1][1]))
    return [{"run": letter, "minutes": s / 60, "y": base / ms if as_speedup else ms} for s, ms in steps]


def _steps(events: Sequence[AnyEvent]) -> list[tuple[float, float]]:
    """Seconds of work, and the best kernel's time in ms from then on."""
    steps: list[tuple[float, float]] = []
    times: dict[tuple[int, str], float] = {}
    for event in events:
        if isinstance(event, ev.Evaluated) and not isinstance(event.outcome, Rejected) and event.outcome.timing:
            ms = event.outcome.timing.median_ms
            times[event.iteration, event.branch] = ms
            if event.iteration == 0 and event.branch == "baseline" and ms > 0 and not steps:
                steps.append((event.elapsed_s, ms))
        elif isinstance(event, ev.ChampionDecided) and event.accepted and steps:
            ms = times.get((event.iteration, event.branch), 0.0)
            if ms > 0:
                steps.append((event.elapsed_s, ms))
    return steps
