"""Rendering of the Jinja prompt templates. A missing variable is an error, never an empty string."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: object) -> str:
    """Render `templates/<template>.j2` with plain data.

    Raises:
        jinja2.UndefinedError: the template uses a value that was not given.
    """
    return _environment().get_template(f"{template}.j2").render(**values).strip() + "\n"


def number(value: float | int | None) -> str:
    """Four significant digits; a missing number says so."""
    if value is None:
        return "not measured"
    if isinstance(value, int):
        return str(value)
    return f"{value:.4g}"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Prompts are text for a model, not markup: escaping would change kernels.
        autoescape=False,
    )
    environment.filters["num"] = number
    return environment
