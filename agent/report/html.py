"""`report.html`: what the summary says, with charts, every branch and the source, in one file that fetches nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.events import AnyEvent
from agent.report.branches import branch_details
from agent.report.charts import draw_charts
from agent.report.diff import changes
from agent.report.page import render_page
from agent.report.sections import build_report
from agent.state import State

_AFTER_SOURCE = ("frontier", "memory", "cost", "trust")


def render_html(state: State, events: Sequence[AnyEvent], sources: Mapping[str, str]) -> str:
    """The run as one self-contained page.

    Args:
        state: the folded state.
        events: the log it was folded from.
        sources: kernel source by `baseline` and `best`; what is missing is left out.
    """
    both = "baseline" in sources and "best" in sources
    report = build_report(state, events)
    told = [section for section in report.sections if not section.is_empty]
    return render_page(
        "report.html.j2",
        report=report,
        evidence=[section for section in told if section.anchor not in _AFTER_SOURCE],
        rest=[section for section in told if section.anchor in _AFTER_SOURCE],
        silent=[section.title for section in report.sections if section.is_empty],
        charts=draw_charts(state, events),
        branches=branch_details(state, events),
        diff=changes(sources["baseline"], sources["best"], state.backend) if both else (),
        both=both,
        sources=sources,
    )
