"""The command line. Commands import what they need when they run, so that `--help` answers at once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from agent.asked import FILE, Asked, kernel_options, set_option
from agent.command import OneLineGroup, Result, command
from agent.errors import ConfigError
from agent.memory_cli import memory_group


def _need_run(folder: Path) -> None:
    """Raises ConfigError: a night's folder, where a run's is meant."""
    if (folder / "night.jsonl").is_file():
        raise ConfigError(
            f"{folder}: is a night; name one of its runs, which lie beside it, "
            f"or go on with all of it: python -m agent nightly --resume {folder}"
        )


@click.group(cls=OneLineGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="roofclimb", prog_name="roofclimb")
def main() -> None:
    """Makes compute kernels faster overnight, with evidence for every method."""


_config = click.option("--config", required=True, help="Task file, or the name of a shipped one (quickstart).")

_from = click.option(
    "--from", "report", type=FILE, help="An ncu report (.ncu-rep), CSV page or log, instead of a kernel."
)
_DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "int8")


@main.command()
@_config
@set_option
@click.option(
    "--dry-run", is_flag=True, help="Measure, render the first prompt, estimate tokens and dollars; ask nothing."
)
@click.option("--require-sandbox", is_flag=True, help="Refuse to run where a layer of the sandbox is missing.")
@command
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
    from agent.inspection import finished
    from agent.session import start

    limits = loaded.budget
    state = start(loaded, lambda iterations: make_progress(sys.stderr, iterations, limits.minutes, limits.usd))
    return finished(state, loaded.output / state.run_id)


@main.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@command
def resume(run_dir: Path) -> Result:
    """Go on with a run where it stopped."""
    from agent.inspection import finished
    from agent.progress import make_progress
    from agent.session import resume as go_on
    from agent.watching.limits import read_limits

    _need_run(run_dir)
    limits = read_limits(run_dir)
    state = go_on(run_dir, lambda iterations: make_progress(sys.stderr, iterations, limits.minutes, limits.usd))
    return finished(state, run_dir)


@main.command(short_help="Make several kernels faster, unattended.")
@click.argument("tasks", nargs=-1, metavar="[CONFIG… | DIR | NIGHT.yaml]")
@set_option
@click.option("--usd", type=click.FloatRange(0, min_open=True), help="Dollars that all tasks share.")
@click.option("--hours", type=click.FloatRange(0, min_open=True), help="Hours that all tasks share.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the night and its runs go (runs).")
@click.option("--on-finish", metavar="COMMAND", help="Told the summary, as JSON on its standard input.")
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with this night.")
@click.option("--new", is_flag=True, help="Begin another night, even if the same one was left unfinished.")
@command
def nightly(
    tasks: tuple[str, ...],
    overrides: tuple[str, ...],
    usd: float | None,
    hours: float | None,
    output: Path | None,
    on_finish: str | None,
    resume: Path | None,
    new: bool,
) -> Result:
    """Make several kernels faster, the most hopeful first, within one budget; one page says what came of them.

    CONFIG is a task file or the name of a shipped one, DIR a folder of task files, NIGHT.yaml a night's own file, given
    alone. The same command goes on with a night that did not end.
    """
    from agent.nightly.asked import Options
    from agent.nightly.command import nightly as work

    return work(tasks, Options(overrides, usd, hours, output, on_finish), resume, new=new)


@main.command(short_help="Look at this machine, and at a task's contract.")
@click.option("--config", help="Check this task's contract too.")
@set_option
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("."), help="Folder of env.json and env.md; this one else."
)
@command
def check(config: str | None, overrides: tuple[str, ...], output: Path) -> Result:
    """Look at this machine, and at a task's contract; nothing is asked of a model."""
    from agent.checking import check as look

    return look(config, overrides, output)


@main.command()
@kernel_options
@command
def bench(asked: Asked) -> Result:
    """Build, verify and time one kernel.

    bench KERNEL --ref REF --dim M=512 …, or bench --config TASK [--kernel FILE].
    """
    from agent.bench import bench as measure

    return measure(asked)


@main.command()
@kernel_options
@_from
@click.option("--full", is_flag=True, help="All sections of ncu, not only what an iteration asks for.")
@click.option("--save", type=FILE, metavar="FILE.ncu-rep", help="Keep ncu's report.")
@command
def profile(asked: Asked, report: Path | None, full: bool, save: Path | None) -> Result:
    """Profile one call of a kernel, or read a profile.

    profile KERNEL --dim M=512 …, profile --config TASK [--kernel FILE], or profile --from REPORT.
    """
    from agent.profiling_cli import profile as take

    return take(asked, report, full, save)


@main.command()
@kernel_options
@_from
@click.option("--time-ms", type=click.FloatRange(0, min_open=True), help="With --from: the call's time without ncu.")
@click.option("--flops", help="With --from: operations of one call, as arithmetic: 2*4096**3.")
@click.option("--bytes", "moved", help="With --from: the least bytes that one call moves.")
@click.option("--dtype", type=click.Choice(_DTYPES), help="With --from: the arithmetic (float32).")
@click.option("--measured", is_flag=True, help="With --from: on ceilings measured on this machine's GPU.")
@command
def roofline(
    asked: Asked,
    report: Path | None,
    time_ms: float | None,
    flops: str | None,
    moved: str | None,
    dtype: str | None,
    measured: bool,
) -> Result:
    """How far a kernel is from its floor, and on which axis.

    roofline KERNEL --dim M=512 …, roofline --config TASK [--kernel FILE], or roofline --from REPORT.
    """
    from agent.profiling_cli import roofline as look

    return look(asked, report, time_ms=time_ms, flops=flops, moved=moved, dtype=dtype, measured=measured)


@main.command()
@click.argument("kernel", required=False, type=FILE)
@click.option("--against", type=FILE, help="The kernel that it grew from: which methods does the machine code show?")
@click.option("--arch", metavar="sm_90", help="Build for this GPU, which need not be here.")
@click.option("--method", "methods", multiple=True, metavar="ID", help="Only these methods; told even where absent.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=VALUE", help="A dim of a Triton kernel's setup.")
@click.option("--config", help="Task file instead of KERNEL: its flags, macros and dims.")
@click.option("--kernel", "candidate", type=FILE, help="With --config: this kernel, against the baseline.")
@set_option
@click.option("--listing", is_flag=True, help="With the disassembly itself.")
@command
def sass(
    kernel: Path | None,
    against: Path | None,
    arch: str | None,
    methods: tuple[str, ...],
    dims: tuple[str, ...],
    config: str | None,
    candidate: Path | None,
    overrides: tuple[str, ...],
    listing: bool,
) -> Result:
    """Show a kernel's machine code, and the methods in it.

    sass KERNEL [--against BASE], or sass --config TASK [--kernel FILE]. No GPU is needed.
    """
    from agent.config import load_config
    from agent.paths import find_config
    from agent.sass_cli import sass as look
    from agent.sass_cli import sass_of_task

    if kernel is not None and config is not None:
        raise ConfigError(f"sass: with --config the kernel is given as --kernel {kernel}")
    if kernel is None and config is None:
        raise ConfigError("sass: give a KERNEL, or a task file with --config")
    if config is not None:
        if dims:
            raise ConfigError("sass: --dim goes with KERNEL; with --config the task file says the dims")
        task = load_config(find_config(config), overrides)
        return sass_of_task(task, candidate, against, arch, methods, listing=listing)
    assert kernel is not None
    if candidate is not None or overrides:
        raise ConfigError("sass: --kernel and --set go with --config")
    return look(kernel, against, arch, methods, dims, listing=listing)


@main.command(short_help="What each method of a kernel gains, by building it without.")
@kernel_options
@click.option("--against", type=FILE, help="The kernel that the methods were applied to; by default the baseline.")
@click.option("--method", "methods", multiple=True, metavar="ID", help="Only these methods (compute.loop_unroll).")
@command
def ablate(asked: Asked, against: Path | None, methods: tuple[str, ...]) -> Result:
    """What each method of a kernel gains: it is built without, one switch (RC_…) at a time, and compared.

    ablate --config TASK --kernel FILE, or ablate KERNEL --against BASE --ref REF --dim M=512 …
    """
    from agent.ablate_cli import ablate as measure

    return measure(asked, against, methods)


@main.command(short_help="Known exploits and their honest twins, played here.")
@click.option("--backend", type=click.Choice(("cpp", "cuda", "cutlass", "triton")), help="Only kernels of this kind.")
@click.option("--only", metavar="NAME", help="Only this case.")
@command
def redteam(backend: str | None, only: str | None) -> Result:
    """Play known exploits: each must be rejected, and its honest twin must pass.

    Without --backend, those of all kinds that this machine can run.
    """
    from agent.redteam_cli import redteam as play

    return play(backend, only)


@main.command()
@click.argument("kernel", type=click.Path(path_type=Path))
@click.option("--dim", "dims", multiple=True, metavar="NAME=VALUE", help="Of a Triton kernel's setup: cols=4096.")
@command
def inspect(kernel: Path, dims: tuple[str, ...]) -> Result:
    """Show what would be bound: parameters, types, roles."""
    from agent.inspection import inspect_kernel

    return inspect_kernel(kernel, dims)


@main.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@command
def report(run_dir: Path) -> Result:
    """Write summary.md and report.html of a run anew."""
    from agent.inspection import report_run

    _need_run(run_dir)
    return report_run(run_dir)


@main.command(short_help="Whether a run's speedup holds: its winner built and measured again.")
@click.argument("run_dir", type=click.Path(path_type=Path))
@command
def verify(run_dir: Path) -> Result:
    """Build a run's winner from its bundle (best/), measure it against the baseline, and say if the claim holds."""
    from agent.verify_cli import verify as check

    _need_run(run_dir)
    return check(run_dir)


@main.command(short_help="Look on at a run or a night from another terminal.")
@click.argument("place", required=False, type=click.Path(path_type=Path), metavar="[RUN_DIR|NIGHT_DIR|RUNS_DIR]")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a run that stopped may take to be resumed.",
)
@command
def watch(place: Path | None, wait_s: float) -> Result:
    """Look on at a run from its start until it ends, or at a night.

    In a folder of runs (`runs`): at the night that is on, else at the run being worked on, else at the newest.
    """
    from agent.watching.watch import watch as look_on

    return look_on(place, wait_s)


@main.command(short_help="A page of all runs, on this machine.")
@click.argument("runs_dir", type=click.Path(path_type=Path), default=Path("runs"))
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="0 picks a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another address lets other machines read.")
@command
def serve(runs_dir: Path, port: int, host: str) -> Result:
    """Show all runs of a folder on a page: what is being done now, what came of the others, two side by side.

    Read-only; for this machine's own browser unless --host says otherwise.
    """
    from agent.serve.server import serve as show

    return show(runs_dir, host, port, sys.stderr)


main.add_command(memory_group)
