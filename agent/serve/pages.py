"""Pages as text: Jinja over what the catalogue knows. Everything printed is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from urllib.parse import quote

from markupsafe import Markup

from agent.report import fmt
from agent.serve.catalog import Catalog, RunView
from agent.serve.compare import Comparison
from agent.state import State
from agent.templates import environment

_TONES = {
    "finished": "good",
    "running": "live",
    "interrupted": "unsure",
    "waiting": "unsure",
    "stopped": "unsure",
    "failed": "bad",
    "damaged": "bad",
    "empty": "",
}
_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_PAD = 84, 22, 3


class Pages:
    """Renders. Made once: templates are compiled when first used."""

    def __init__(self) -> None:
        self._environment = environment("agent.serve", autoescape=True, finalize=_visible)
        self._environment.globals.update(
            fmt=fmt, spark=spark, tone=lambda word: _TONES.get(word, ""), path=quote, age=age_s, minute=minute
        )

    def runs(self, catalog: Catalog) -> str:
        """All runs and nights."""
        return self._render("runs.html.j2", **_overview(catalog))

    def runs_fragment(self, catalog: Catalog) -> str:
        """The part of it that changes."""
        return self._render("runs_live.html.j2", **_overview(catalog))

    def run(self, catalog: Catalog, view: RunView) -> str:
        """One run."""
        return self._render("run.html.j2", root=str(catalog.root), view=view)

    def run_fragment(self, view: RunView) -> str:
        """The part of it that changes."""
        return self._render("run_live.html.j2", view=view)

    def comparison(self, comparison: Comparison) -> str:
        """Two runs."""
        return self._render("compare.html.j2", c=comparison)

    def message(self, title: str, text: str) -> str:
        """A page of one sentence."""
        return self._render("message.html.j2", title=title, text=text)

    def _render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(**values)


def _overview(catalog: Catalog) -> dict[str, object]:
    runs = catalog.runs()
    return {
        "root": str(catalog.root),
        "runs": runs,
        "working": [run for run in runs if run.condition == "running"],
        "nights": catalog.nights,
        "conditions": list(dict.fromkeys(run.condition for run in runs)),
    }


def spark(state: State) -> Markup:
    """The best time after each iteration as a small line, falling as it gets faster; nothing before the first gain."""
    times = [state.baseline_ms]
    for iteration in sorted(state.iterations, key=lambda i: i.iteration):
        times.append(iteration.champion_ms if iteration.status == "accepted" and iteration.champion_ms else times[-1])
    known = [ms for ms in times if ms]
    return Markup("") if len(set(known)) < 2 else Markup(_svg(known))


def _svg(times: Sequence[float]) -> str:
    heights = [math.log(ms) for ms in times]
    low, high = min(heights), max(heights)
    across = (_SPARK_WIDTH - 2 * _SPARK_PAD) / (len(heights) - 1)
    down = (_SPARK_HEIGHT - 2 * _SPARK_PAD) / (high - low) if high > low else 0.0
    points = [(_SPARK_PAD + i * across, _SPARK_PAD + (high - h) * down) for i, h in enumerate(heights)]
    line = f"M{points[0][0]:.1f},{points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
    x, y = points[-1]
    size = f'viewBox="0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}" width="{_SPARK_WIDTH}" height="{_SPARK_HEIGHT}"'
    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
    return f'<svg class="spark" {size} aria-hidden="true"><path d="{line}"/>{dot}</svg>'


def age_s(at: str) -> float:
    """Seconds since an event, by the server's clock; 0 where that is not known."""
    if not at:
        return 0.0
    return max(0.0, (datetime.now(timezone.utc) - datetime.fromisoformat(at)).total_seconds())


def minute(at: str) -> str:
    """An event's time to the minute, UTC."""
    return fmt.instant(at)[:16].replace("T", " ") if at else fmt.MISSING


def _visible(value: object) -> object:
    """Control and direction marks in foreign text become visible: nothing must read otherwise than it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in value)
