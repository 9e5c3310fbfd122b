"""The change from one kernel to another, line by line, coloured as its language is."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from agent.report.page import visible

_CONTEXT_LINES = 3
_LEXERS: Mapping[str, str] = {"cpp": "cpp", "cuda": "cuda", "cutlass": "cuda", "triton": "python"}

Kind = Literal["added", "removed", "same", "skipped"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number before and after ("" where it is not there), and its text as safe HTML."""

    kind: Kind
    before: str
    after: str
    text: Markup

    @property
    def sign(self) -> str:
        """What a reader without colours goes by."""
        return {"added": "+", "removed": "-"}.get(self.kind, " ")


def _coloured(text: str, backend: str) -> Markup:
    """Source as HTML: escaped, with spans that carry pygments' short class names."""
    lexer = get_lexer_by_name(_LEXERS.get(backend, "text"), stripnl=False, ensurenl=False)
    # pygments escapes what it is given: nothing of the source survives as markup.
    return Markup(highlight(visible(text), lexer, HtmlFormatter(nowrap=True)))


def changes(before: str, after: str, backend: str) -> tuple[Line, ...]:
    """Unified, with a little around each change; nothing where the two are the same."""
    old, new = before.splitlines(), after.splitlines()
    old_html, new_html = _lines(old, backend), _lines(new, backend)
    lines: list[Line] = []
    reached = 0
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        lines += _skipped(group[0][1] - reached)
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [
                    Line("same", str(i + 1), str(j + 1), old_html[i])
                    for i, j in zip(range(i1, i2), range(j1, j2), strict=True)
                ]
                continue
            lines += [Line("removed", str(i + 1), "", old_html[i]) for i in range(i1, i2)]
            lines += [Line("added", "", str(j + 1), new_html[j]) for j in range(j1, j2)]
        reached = group[-1][2]
    return (*lines, *_skipped(len(old) - reached)) if lines else ()


def _skipped(number: int) -> list[Line]:
    return [Line("skipped", "", "", Markup(f"{number} unchanged line{'s' * (number != 1)}"))] if number else []


def _lines(source: list[str], backend: str) -> list[Markup]:
    """Each line coloured on its own terms in the whole: a comment over several lines stays one.

    pygments closes its spans at the end of each line.
    """
    html = _coloured("\n".join(source), backend).split("\n")
    return [Markup(line) for line in html]
