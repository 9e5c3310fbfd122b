"""What every command has in common: --json, --debug, and an error as one line and an exit code."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import IO, Any, ParamSpec

import click

from agent.errors import RoofclimbError

P = ParamSpec("P")
Result = tuple[Mapping[str, Any], str]


class OneLineGroup(click.Group):
    """A group whose usage errors are one line, as all others are; without a command it shows its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The group's own options; with nothing at all, the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        with _one_line(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """The command, its options first."""
        with _one_line(ctx):
            return super().invoke(ctx)


@contextmanager
def _one_line(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        said = error.format_message().rstrip(".")
        raise _OneLine(f"{said}; see {(error.ctx or ctx).command_path} --help") from error


class _OneLine(click.ClickException):
    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"roofclimb: {self.format_message()}", file=file, err=file is None)


def command(function: Callable[P, Result]) -> Callable[..., None]:
    """Add --json and --debug: the result goes to stdout, an error is one line on stderr and an exit code.

    Args:
        function: does the work; returns the result as data for --json and as text for people (none of it, no line).
    """

    @click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else there.")
    @click.option("--debug", is_flag=True, help="Show tracebacks.")
    @wraps(function)
    def wrapper(as_json: bool, debug: bool, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            data, text = function(*args, **kwargs)
        except RoofclimbError as error:
            if debug:
                traceback.print_exc()
            data, text = error.found or ({}, "")
            if text and not as_json:
                click.echo(text)
            _fail(str(error), error.exit_code, as_json, data)
        except KeyboardInterrupt:
            _fail("interrupted", 130, as_json)
        except Exception as error:  # anything unexpected is a bug: one line, and the traceback on request
            if debug:
                raise
            _fail(f"bug: {type(error).__name__}: {error} (run again with --debug and report it)", 1, as_json)
        else:
            if as_json or text:
                click.echo(json.dumps(data, indent=2) if as_json else text)

    return wrapper


def _fail(message: str, code: int, as_json: bool, found: Mapping[str, Any] | None = None) -> None:
    if as_json:
        click.echo(json.dumps({**(found or {}), "error": message, "exit_code": code}, indent=2))
    click.echo(f"roofclimb: {message}", err=True)
    sys.stdout.flush()
    sys.exit(code)
