"""How templates of pages and summaries are read: what is not defined is an error, and blocks leave no blank lines."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def environment(
    *packages: str,
    autoescape: bool,
    finalize: Callable[[object], object] | None = None,
    keep_trailing_newline: bool = False,
) -> Environment:
    """The templates of some packages.

    Args:
        packages: whose folders `templates` they lie in; the first that has one gives it.
        autoescape: for HTML.
        finalize: what every printed value passes.
        keep_trailing_newline: as Jinja's.
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        undefined=StrictUndefined,
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=keep_trailing_newline,
        finalize=finalize,
    )
