"""`report.html`: what the summary says, with charts, every branch and the source, in one file that fetches nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.events import AnyEvent
from agent.report.branches import branch_details
from agent.report.charts import draw_charts
from agent.report.diff import changes
from agent.report.fmt import MISSING
from agent.report.page import render_page
from agent.report.sections import build_report
from agent.state import State


def render_html(state: State, events: Sequence[AnyEvent], sources: Mapping[str, str]) -> str:
    """The run as one self-contained page.

    Args:
        state: the folded state.
        events: the log it was folded from.
        sources: kernel source by `baseline` and `best`; what is missing is left out.
    """
    both = "baseline" in sources and "best" in sources
    return render_page(
        "report.html.j2",
        report=build_report(state, events),
        charts=draw_charts(state, events),
        branches=branch_details(state, events),
        diff=changes(sources["baseline"], sources["best"], state.backend) if both else (),
        both=both,
        sources=sources,
        missing=MISSING,
    )
