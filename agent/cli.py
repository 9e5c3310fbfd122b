"""The command line. Commands import what they need when they run, so that `--help` answers at once."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import click

from agent.errors import ConfigError, RoofclimbError
from agent.memory_cli import memory_group

P = ParamSpec("P")
Result = tuple[Mapping[str, Any], str]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="roofclimb", prog_name="roofclimb")
def main() -> None:
    """Makes compute kernels faster overnight, with evidence for every method."""


def _command(function: Callable[P, Result]) -> Callable[..., None]:
    """Add --json and --debug: the result goes to stdout, an error is one line on stderr and an exit code."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else there.")
    @click.option("--debug", is_flag=True, help="Show tracebacks.")
    @wraps(function)
    def wrapper(as_json: bool, debug: bool, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            data, text = function(*args, **kwargs)
        except RoofclimbError as error:
            if debug:
                traceback.print_exc()
            _fail(str(error), error.exit_code, as_json)
        except KeyboardInterrupt:
            _fail("interrupted", 130, as_json)
        except Exception as error:  # anything unexpected is a bug: one line, and the traceback on request
            if debug:
                raise
            _fail(f"bug: {type(error).__name__}: {error} (run again with --debug and report it)", 1, as_json)
        else:
            click.echo(json.dumps(data, indent=2) if as_json else text)

    return wrapper


def _fail(message: str, code: int, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": message, "exit_code": code}, indent=2))
    click.echo(f"roofclimb: {message}", err=True)
    sys.stdout.flush()
    sys.exit(code)


_config = click.option("--config", required=True, help="Task file, or the name of a shipped one (quickstart).")
_set = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key: search.branches=2.")


@main.command()
@_config
@_set
@click.option(
    "--dry-run", is_flag=True, help="Measure, render the first prompt, estimate tokens and dollars; ask nothing."
)
@click.option("--require-sandbox", is_flag=True, help="Refuse to run where a layer of the sandbox is missing.")
@_command
def run(config: str, overrides: tuple[str, ...], dry_run: bool, require_sandbox: bool) -> Result:
    """Make a kernel faster."""
    from agent.config import load_config
    from agent.paths import find_config
    from agent.progress import make_progress

    if require_sandbox:
        overrides = (*overrides, "measure.require_sandbox=true")
    loaded = load_config(find_config(config), overrides)
    if dry_run:
        from agent.dryrun import dry_run as estimate

        return estimate(loaded, make_progress(sys.stderr, 1))
    from agent.session import start

    return _finished(start(loaded, lambda iterations: make_progress(sys.stderr, iterations)))


@main.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@_command
def resume(run_dir: Path) -> Result:
    """Go on with a run where it stopped."""
    from agent.progress import make_progress
    from agent.session import resume as go_on

    return _finished(go_on(run_dir, lambda iterations: make_progress(sys.stderr, iterations)))


@main.command()
@click.option("--config", help="Check this task's contract too.")
@_set
@click.option("--output", type=click.Path(path_type=Path), default=Path("."), help="Where env.json and env.md go.")
@_command
def check(config: str | None, overrides: tuple[str, ...], output: Path) -> Result:
    """Look at this machine, and at a task's contract; nothing is asked of a model."""
    from agent.checking import check as look

    return look(config, overrides, output)


@main.command()
@click.argument("kernel", required=False, type=click.Path(path_type=Path))
@click.option("--ref", type=click.Path(path_type=Path), help="Reference module.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=VALUE", help="A dim: M=512.")
@click.option("--scalar", "scalars", multiple=True, metavar="NAME=VALUE", help="A by-value parameter that is no dim.")
@click.option("--config", help="Task file instead of KERNEL.")
@click.option(
    "--kernel", "candidate", type=click.Path(path_type=Path), help="With --config: this kernel, not the baseline."
)
@_set
@_command
def bench(
    kernel: Path | None,
    ref: Path | None,
    dims: tuple[str, ...],
    scalars: tuple[str, ...],
    config: str | None,
    candidate: Path | None,
    overrides: tuple[str, ...],
) -> Result:
    """Build, verify and time one kernel.

    bench KERNEL --ref REF --dim M=512 …, or bench --config TASK [--kernel FILE].
    """
    from agent.bench import bench_config, bench_kernel

    if (kernel is None) == (config is None):
        raise ConfigError("bench: give a KERNEL, or a task file with --config")
    if config is not None:
        if ref is not None or dims or scalars:
            raise ConfigError("bench: --ref, --dim and --scalar go with KERNEL; with --config the task file says them")
        return bench_config(config, candidate, overrides)
    if candidate is not None:
        raise ConfigError("bench: --kernel goes with --config")
    assert kernel is not None
    return bench_kernel(kernel, ref, dims, scalars, overrides)


@main.command()
@click.argument("kernel", type=click.Path(path_type=Path))
@_command
def inspect(kernel: Path) -> Result:
    """Show what would be bound: parameters, types, roles."""
    from agent.inspection import inspect_kernel

    return inspect_kernel(kernel)


@main.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@_command
def report(run_dir: Path) -> Result:
    """Write summary.md and report.html of a run anew."""
    from agent.inspection import report_run

    return report_run(run_dir)


main.add_command(memory_group)


def _finished(state: Any) -> Result:
    from agent.inspection import finished

    return finished(state)
