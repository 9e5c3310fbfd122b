"""`index.html`, `index.md` and `index.json` of a night, all from one summary."""

from __future__ import annotations

from pathlib import Path

from agent.artefacts import write_json, write_text
from agent.nightly.summary import NightSummary
from agent.report import fmt
from agent.templates import environment

# As the style that all pages share colours them.
_STYLE = {
    "faster": "good",
    "failed": "bad",
    "working": "unsure",
    "waiting": "unsure",
    "interrupted": "unsure",
    "unclear": "unsure",
}


def write_pages(summary: NightSummary, folder: Path) -> None:
    """Write the three, each replaced in one step.

    Raises:
        UnfitEnvironment: the folder cannot be written.
    """
    write_json(folder / "index.json", summary)
    for name, escape in (("index.md", False), ("index.html", True)):
        templates = environment("agent.nightly", "agent.report", autoescape=escape)
        templates.filters["line"] = fmt.one_line if escape else _in_table
        page = templates.get_template(f"{name}.j2").render(
            night=summary, title=title(summary), fmt=fmt, style=_STYLE, cost=_cost(summary), worked=_worked(summary)
        )
        write_text(folder / name, page)


def title(summary: NightSummary) -> str:
    """The night in one line: how many tasks came to what."""
    outcomes = [task.outcome for task in summary.tasks]
    counts = {word: outcomes.count(word) for word in dict.fromkeys(outcomes)}
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    tasks = f"{len(outcomes)} task{'s' if len(outcomes) != 1 else ''}"
    return f"{tasks}: {said}"


def as_text(summary: NightSummary) -> str:
    """The night for a terminal or a mail: one line a task."""
    lines = [f"{summary.night}: {title(summary)}; {_cost(summary)}, {_worked(summary)}"]
    for task in summary.tasks:
        speedup = "" if task.speedup is None else f" {fmt.speedup(task.speedup, task.low, task.high)}"
        reason = "" if task.outcome in ("faster", "no gain") else f": {fmt.one_line(task.reason)}" * bool(task.reason)
        lines.append(f"  {task.task}: {task.outcome}{speedup}{reason}")
    return "\n".join([*lines, str(Path(summary.folder) / "index.html")])


def _cost(summary: NightSummary) -> str:
    usd = fmt.dollars(summary.usd)
    return usd if summary.usd_limit is None else f"{usd} of {fmt.dollars(summary.usd_limit)}"


def _worked(summary: NightSummary) -> str:
    wall = fmt.wall(summary.elapsed_s)
    return wall if summary.hours_limit is None else f"{wall} of {fmt.wall(3600 * summary.hours_limit)}"


def _in_table(text: str) -> str:
    return fmt.one_line(text).replace("|", "\\|")
