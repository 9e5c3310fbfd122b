"""`summary.md`: the morning's one page, as text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment

from agent.events import AnyEvent
from agent.report.fmt import MISSING, one_line
from agent.report.sections import build_report
from agent.report.view import Table
from agent.state import State
from agent.templates import environment

# What Markdown would obey. An underscore inside a word is left alone: method ids and identifiers are full of them.
_SPECIAL = re.compile(r"[\\|<>*`]|\](?=[(\[])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


class _Done(str):
    """Text that is Markdown already."""

    __slots__ = ()


def render_summary(state: State, events: Sequence[AnyEvent]) -> str:
    """The run as Markdown."""
    template = _environment().get_template("summary.md.j2")
    return template.render(report=build_report(state, events), missing=MISSING)


def _environment() -> Environment:
    templates = environment("agent.report", autoescape=False, finalize=_finalize, keep_trailing_newline=True)
    templates.filters.update(row=_row, rule=_rule, code=_code)
    return templates


def _finalize(value: object) -> str:
    """Everything printed passes here, so no compiler message or model answer can break the page."""
    if isinstance(value, _Done):
        return value
    return _SPECIAL.sub(r"\\\g<0>", one_line(str(value)))


def _row(cells: Sequence[str]) -> _Done:
    return _Done(" | ".join(_finalize(cell) for cell in cells))


def _rule(table: Table) -> _Done:
    """The line under a table's head; a colon sets numbers flush right."""
    return _Done("|".join("---:" if column in table.numeric else "---" for column in table.columns))


def _code(text: str) -> _Done:
    """An indented block: nothing inside can end it, as a line of backticks would end a fence."""
    return _Done("\n".join(f"    {line}" for line in text.splitlines()))
