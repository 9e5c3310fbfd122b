"""What every HTML page has in common: the frame, escaping, and a policy under which only our own script runs."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from agent.report.view import is_long
from agent.templates import environment

_SHORT_CELL, _LONGEST_WORD = 12, 40  # characters
_TEMPLATES = Path(__file__).parent / "templates"
_GOOD = frozenset(("accepted", "pass", "effective", "verified", "finished"))
_BAD = frozenset(("failed", "fail", "rejected", "error", "implementation failed", "absent"))
_UNSURE = frozenset(("suspect", "unverified", "interaction", "unavailable", "interrupted", "waiting"))


def render_page(template: str, *, script: str = "", connect: str = "'none'", **values: object) -> str:
    """A page that extends `page.html.j2`, as one self-contained text.

    Args:
        template: its name in `agent/report/templates`.
        script: of our own, run after the one that every page has. Never anything that came from outside.
        connect: what it may connect to, as the Content-Security-Policy says it (`'self'` for a served page).
        values: what the template prints; all of it is escaped.
    """
    whole = (_TEMPLATES / "page.js").read_text(encoding="utf-8") + script
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connect}; script-src 'sha256-{_digest(whole)}'"
    )
    # Markup: the text between the tags must be the very bytes that were hashed.
    return _environment().get_template(template).render(policy=Markup(policy), script=Markup(whole), **values)


def visible(text: str) -> str:
    """Control and direction marks in foreign text become visible: a diff must not read otherwise than it compiles."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def tone(word: str) -> str:
    """The class that colours a verdict; the word itself stays, for those who do not see colours."""
    found = {"good": word in _GOOD, "bad": word in _BAD, "unsure": word in _UNSURE}
    return next((name for name, matches in found.items() if matches), "")


def extent(cell: str) -> str:
    """How much room a table's cell wants, as classes of the style."""
    if is_long(cell):
        return "long breaks" if max(map(len, cell.split()), default=0) > _LONGEST_WORD else "long"
    return "middling" if len(cell) > _SHORT_CELL else ""


def _environment() -> Environment:
    templates = environment("agent.report", autoescape=True, finalize=_finalize)
    templates.filters.update(tone=tone, extent=extent)
    return templates


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
