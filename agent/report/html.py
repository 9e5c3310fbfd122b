"""`report.html`: the same page with charts and the source diff, in one file that fetches nothing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agent.events import AnyEvent
from agent.report.charts import draw_charts
from agent.report.fmt import MISSING
from agent.report.sections import build_report
from agent.state import State

_CONTEXT_LINES = 4
_GOOD = frozenset(("accepted", "pass", "effective", "verified"))
_BAD = frozenset(("failed", "fail", "rejected", "error", "implementation failed", "absent"))
_UNSURE = frozenset(("suspect", "unverified", "interaction", "unavailable"))


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of the diff and how it is coloured."""

    kind: Literal["added", "removed", "hunk", "same"]
    text: str


def render_html(state: State, events: Sequence[AnyEvent], sources: Mapping[str, str]) -> str:
    """The run as one self-contained page.

    Args:
        state: the folded state.
        events: the log it was folded from.
        sources: kernel source by `baseline` and `best`; what is missing is left out.
    """
    environment = Environment(
        loader=PackageLoader("agent.report"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters["status_class"] = _status_class
    return environment.get_template("report.html.j2").render(
        report=build_report(state, events),
        charts=draw_charts(state, events),
        diff=_diff(sources),
        sources=sources,
        missing=MISSING,
        run_id=state.run_id,
    )


def _visible(value: object) -> object:
    """Control and direction marks in foreign text become visible: a diff must not read otherwise than it compiles."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in value)


def _status_class(cell: str) -> str:
    """The class that colours a verdict; the word itself stays, for those who do not see colours."""
    found = {"is-good": cell in _GOOD, "is-bad": cell in _BAD, "is-unsure": cell in _UNSURE}
    return next((name for name, matches in found.items() if matches), "")


def _diff(sources: Mapping[str, str]) -> list[DiffLine]:
    """Baseline to best as a unified diff, its two file-name lines left out."""
    if "baseline" not in sources or "best" not in sources:
        return []
    before, after = sources["baseline"].splitlines(), sources["best"].splitlines()
    lines = list(difflib.unified_diff(before, after, lineterm="", n=_CONTEXT_LINES))[2:]
    kinds: Mapping[str, Literal["added", "removed", "hunk"]] = {"+": "added", "-": "removed", "@": "hunk"}
    return [DiffLine(kinds.get(line[:1], "same"), line) for line in lines]
