"""Writes `summary.md` and `report.html` of a run folder, whatever state the run is in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from agent import events as ev
from agent.config import validate
from agent.errors import ConfigError, UnfitEnvironment
from agent.events import AnyEvent
from agent.journal import read_events
from agent.report.html import render_html
from agent.report.summary import render_summary
from agent.report.view import DEFAULT_NOISE, last
from agent.state import fold


def write_reports(folder: Path) -> None:
    """Write both reports from the run's own log, each replaced in one step.

    Raises:
        ConfigError: no run folder, or its log is damaged.
        UnfitEnvironment: the folder cannot be written.
    """
    events, _ = read_events(folder / "events.jsonl")
    state = fold(events)
    noise = _noise(folder / "config.yaml")
    _replace(folder / "summary.md", render_summary(state, events, noise))
    _replace(folder / "report.html", render_html(state, events, _sources(folder, events, state.best_file), noise))


def _noise(path: Path) -> float:
    """The run's own threshold. Read without resolving its paths: a moved or copied run must still report."""
    if not path.is_file():
        return DEFAULT_NOISE
    try:
        data = YAML(typ="safe", pure=True).load(path.read_text())
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); the claim rests on its search.noise") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: holds no mapping; the claim rests on its search.noise")
    return validate(data, str(path)).search.noise


def _sources(folder: Path, events: Sequence[AnyEvent], best_file: str | None) -> dict[str, str]:
    """The kernel text of the baseline and of the best so far, as far as the run has come."""
    started = last(events, ev.RunStarted)
    places = {"baseline": f"baseline/kernel{started.suffix}" if started else None, "best": best_file}
    return {
        name: (folder / place).read_text(errors="replace")
        for name, place in places.items()
        if place is not None and (folder / place).is_file()
    }


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UnfitEnvironment(f"{path}: cannot be written ({error.strerror}); free space or fix its rights") from None
