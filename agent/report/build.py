"""Writes `summary.md` and `report.html` of a run folder, whatever state the run is in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent import events as ev
from agent.artefacts import read_source, write_text
from agent.events import AnyEvent
from agent.journal import read_events
from agent.report.html import render_html
from agent.report.summary import render_summary
from agent.report.view import last
from agent.state_fold import fold


def write_reports(folder: Path) -> None:
    """Write both reports from the run's own log, each replaced in one step.

    Raises:
        ConfigError: no run folder, or its log is damaged.
        UnfitEnvironment: the folder cannot be written.
    """
    events, _ = read_events(folder / "events.jsonl")
    state = fold(events)
    write_text(folder / "summary.md", render_summary(state, events))
    write_text(folder / "report.html", render_html(state, events, _sources(folder, events, state.best_file)))


def _sources(folder: Path, events: Sequence[AnyEvent], best_file: str | None) -> dict[str, str]:
    """The kernel text of the baseline and of the best so far, as far as the run has come."""
    started = last(events, ev.RunStarted)
    places = {"baseline": f"baseline/kernel{started.suffix}" if started else None, "best": best_file}
    return {
        name: read_source(folder / place)
        for name, place in places.items()
        if place is not None and (folder / place).is_file()
    }
