"""`profile` and `roofline`: of a kernel here and now, or of a report or log of Nsight Compute that is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.table import Table

from agent.artefacts import plain
from agent.asked import Asked
from agent.errors import ConfigError, UnfitEnvironment
from agent.faults import as_exit_codes
from agent.inspection import draw
from agent.lab import Subject, existing, find_subject
from agent.live import Live, profile_live
from agent.machine import here
from agent.paths import cache_folder
from profiling.binding import evaluate_expression
from profiling.findings import AXES, Ceilings, Headroom, Profile, Work
from profiling.gpu_ceilings import measure_gpu_ceilings
from profiling.gpu_metrics import gpu_loads, report_ceilings
from profiling.headroom import NEAR_PEAK, axis_budget, headroom, headroom_of, loads, top_metrics
from profiling.ncu.faults import NcuFault
from profiling.ncu.pages import Launch, Pages, parse_pages
from profiling.ncu.runner import make_profile, read_report
from profiling.ncu.summary import kernels_of, overall

_MOST_BYTES = 512 << 20
_TOP = 5
_RULES_SHOWN = 8
_RULE_WIDTH = 300
_UNKNOWN_WORK = Work(None, None)
_DTYPE = "float32"
Result = tuple[Mapping[str, Any], str]


@dataclass(frozen=True, slots=True)
class Question:
    """What `roofline` is asked. What is None is not known.

    Attributes:
        time_ms: the call's time; by default that of the profile, which is the GPU's under ncu.
        work: what one call must do.
        dtype: the arithmetic that the operations are counted at.
        ceilings: this GPU's as measured; by default the chip's theoretical peaks as far as the report tells them.
        methods, axis_cap: for the budget that a plan would get.
        near_peak: headroom under which, on all axes, a kernel counts as near its peak.
    """

    time_ms: float | None = None
    work: Work = _UNKNOWN_WORK
    dtype: str = _DTYPE
    ceilings: Ceilings | None = None
    methods: int = 3
    axis_cap: int = 2
    near_peak: float = NEAR_PEAK


def profile(asked: Asked, report: Path | None, full: bool, save: Path | None) -> Result:
    """Profile a kernel here and now, or read what ncu left.

    Args:
        asked: the kernel.
        report: a report, a CSV page or a log of ncu; then no kernel, `full` or `save`.
        full: all of ncu's sections, not only what each iteration of a run asks for. On a CPU a profile is always full.
        save: where ncu's report is to be kept.

    Raises:
        ConfigError, UnfitEnvironment, HarnessBroken: as the exit codes say.
    """
    if report is not None:
        if asked != Asked() or full or save is not None:
            raise ConfigError("profile: --from reads what is there; a kernel, --full and --save go without it")
        return profile_from(report)
    _some_kernel(asked, "profile")
    subject = find_subject(asked, "profile")
    if save is not None and (save.suffix != ".ncu-rep" or save.exists() or not save.absolute().parent.is_dir()):
        raise ConfigError(f"--save {save}: give a new file called ….ncu-rep in a folder that is there")
    live = profile_live(subject, "full" if full else "targeted", save)
    found, budget = live.headroom(subject.config)
    data = {
        **_about(live, subject),
        "source": live.profile.source,
        "level": live.profile.level,
        "metrics": plain(live.profile.metrics),
        **_evidence(live.profile, live.pages),
        "headroom": plain(found),
        "axis_budget": budget,
        "report": None if save is None else str(save),
    }
    parts = [shown_profile(live.profile, f"{subject.kernel}: {live.known.time_ms:.4g} ms, {live.verdict}")]
    parts += [f"degraded, no counters: {live.degraded}"] if live.degraded else []
    return data, "\n\n".join([*parts, _shown_headroom(found, budget, "measured here"), *live.notes])


def roofline(
    asked: Asked,
    report: Path | None,
    *,
    time_ms: float | None,
    flops: str | None,
    moved: str | None,
    dtype: str | None,
    measured: bool,
) -> Result:
    """How far a kernel is from its floor, by axis: of a kernel measured here and now, or of a profile that is there.

    Args:
        asked: the kernel; its task says what it must do.
        report: as for `profile`; the other arguments go with it.
        time_ms: of the call, not under ncu.
        flops, moved: operations and least bytes of the call, as arithmetic.
        dtype: that the operations are counted at.
        measured: on ceilings measured on this machine's GPU, not on those that the report tells.

    Raises:
        ConfigError, UnfitEnvironment, HarnessBroken: as the exit codes say.
    """
    if report is not None:
        if asked != Asked():
            raise ConfigError("roofline: give a kernel, or a report with --from, not both")
        with as_exit_codes():
            work = Work(_amount(flops, "--flops"), _amount(moved, "--bytes"))
            ceilings = _ceilings_here() if measured else None
        return roofline_from(report, Question(time_ms, work, dtype or _DTYPE, ceilings))
    if any((time_ms, flops, moved, dtype, measured)):
        raise ConfigError(
            "roofline: --time-ms, --flops, --bytes, --dtype and --measured go with --from; a kernel is measured, and "
            "its task says its work (--set task.work.flops=…)"
        )
    _some_kernel(asked, "roofline")
    subject = find_subject(asked, "roofline")
    live = profile_live(subject, "targeted", None)
    found, budget = live.headroom(subject.config)
    data = {**_about(live, subject), "headroom": plain(found), "axis_budget": budget}
    parts = [f"{subject.kernel}, {live.verdict}: {live.profile.note}"]
    parts += [f"degraded, no counters: {live.degraded}"] if live.degraded else []
    return data, "\n".join([*parts, _shown_headroom(found, budget, "measured here"), *live.notes])


def profile_from(path: Path) -> Result:
    """Kernels, top metrics and rules of a report (`.ncu-rep`), a CSV page or a log of Nsight Compute.

    Raises:
        ConfigError: no such file, or no output of ncu with a kernel in it.
        UnfitEnvironment: a report, and no ncu to read it with.
    """
    pages = read_pages(path)
    found = _profile(pages, Question())
    return {"file": str(path), **_evidence(found, pages)}, shown_profile(found, str(path))


def roofline_from(path: Path, question: Question) -> Result:
    """How far a profiled kernel is from its floor, and on which axis.

    Raises:
        ConfigError: a file that is no output of ncu, or one that does not tell the kernel's time.
        UnfitEnvironment: a report, and no ncu to read it with.
    """
    pages = read_pages(path)
    profile = _profile(pages, question)
    time_ms = question.time_ms if question.time_ms is not None else _gpu_time_ms(profile)
    if time_ms is None or time_ms <= 0:
        raise ConfigError(f"{path}: does not tell the kernel's time; give it with --time-ms")
    ceilings, whose = question.ceilings, "measured here"
    if ceilings is None:
        ceilings = report_ceilings(overall(kernels_of(pages.launches)))
        whose = "the chip's theoretical peaks, from the report: no kernel quite reaches them"
    found = _headroom(time_ms, profile, ceilings, question)
    budget = axis_budget(found, question.methods, question.axis_cap)
    data = {
        "file": str(path),
        "headroom": plain(found),
        "axis_budget": budget,
        "work": plain(question.work),
        "dtype": question.dtype,
        "ceilings": None if ceilings is None else plain(ceilings),
    }
    shown = _shown_headroom(found, budget, whose if ceilings is not None else "unknown")
    missing = _no_floor(ceilings, question) if found.floor_ms is None else None
    return data, f"{shown}\n{missing}" if missing else shown


def _no_floor(ceilings: Ceilings | None, question: Question) -> str:
    """What to give so that there is a floor."""
    work = question.work
    if work.flops is None and work.bytes is None:
        return "For a floor, say what one call must do: --flops and --bytes."
    if ceilings is None:
        return "For a floor, give a page that tells the chip's peaks (--page raw), or --measured on the report's GPU."
    return f"The report tells no peak of {question.dtype}; for a floor give --bytes, or --measured on the report's GPU."


def read_pages(path: Path) -> Pages:
    """A report through ncu, anything else as text.

    Raises:
        ConfigError, UnfitEnvironment: as `profile_from`.
    """
    existing(path)
    with _as_exit_codes(path):
        if path.suffix == ".ncu-rep":
            return read_report(path.absolute())
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: larger than {_MOST_BYTES >> 20} MiB; export one page of the report instead")
        try:
            return parse_pages(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{path}: cannot read it ({error.strerror})") from error


def shown_profile(profile: Profile, title: str) -> str:
    """A profile for people."""
    kernels = Table("kernel", "launches", "time", "share", "grid", "block")
    for kernel in profile.kernels:
        share = "" if kernel.share is None else f"{100 * kernel.share:.0f}%"
        time = "not measured" if kernel.time_ms is None else f"{kernel.time_ms:.4g} ms"
        kernels.add_row(kernel.name, str(kernel.launches), time, share, _size(kernel.grid), _size(kernel.block))
    parts = [title, draw(kernels)] if profile.kernels else [title]
    top = top_metrics(profile, _TOP)
    for axis in AXES:
        parts += [f"{axis}:"] if top[axis] else []
        parts += [f"  {f'{m.value:,.4g} {m.unit}'.strip():>20}  {m.name}\n{'':24}{m.meaning}" for m in top[axis]]
    rules = [rule for rule in profile.rules if rule.kind != "INF"]
    for rule in rules[:_RULES_SHOWN]:
        estimate = "" if rule.speedup_percent is None else f" (est. {rule.speedup_percent:.3g}% {rule.speedup_kind})"
        parts.append(f"{rule.kind} {rule.rule}{estimate}, {rule.kernel}:\n  {shorten(rule.text, _RULE_WIDTH)}")
    if len(rules) > _RULES_SHOWN:
        parts.append(f"… {len(rules) - _RULES_SHOWN} more rules; --json has all of them, in full")
    return "\n".join([*parts, profile.note])


def _profile(pages: Pages, question: Question) -> Profile:
    return make_profile(
        pages,
        "full",
        time_ms=question.time_ms,
        work=question.work,
        ceilings=question.ceilings,
        dtype=question.dtype,
        note="",
    )


def _gpu_time_ms(profile: Profile) -> float | None:
    times = [kernel.time_ms for kernel in profile.kernels if kernel.time_ms is not None]
    return sum(times) if times and len(times) == len(profile.kernels) else None


def _headroom(time_ms: float, profile: Profile, ceilings: Ceilings | None, question: Question) -> Headroom:
    if ceilings is None:
        memory, compute = gpu_loads(profile.kernels)
        return headroom_of(
            time_ms, flops_floor_ms=None, bytes_floor_ms=None, w_m=memory, w_c=compute, near_peak=question.near_peak
        )
    return headroom(time_ms, question.work, ceilings, question.dtype, profile, question.near_peak)


def _amount(expression: str | None, option: str) -> float | None:
    amount = None if expression is None else evaluate_expression(expression, {}, option)
    if amount is not None and amount <= 0:
        raise ConfigError(f"{option} {expression}: is not positive")
    return amount


def _ceilings_here() -> Ceilings:
    gpu = here().gpu
    if gpu is None:
        raise UnfitEnvironment("roofline: --measured needs the GPU that the report is of, and there is none here")
    return measure_gpu_ceilings(cache_folder() / "ceilings", gpu)


def _some_kernel(asked: Asked, command: str) -> None:
    if asked.kernel is None and asked.config is None:
        raise ConfigError(f"{command}: give a KERNEL, a task file with --config, or a report with --from")


def _about(live: Live, subject: Subject) -> dict[str, Any]:
    return {
        "kernel": str(subject.kernel),
        "backend": live.backend,
        "verdict": live.verdict,
        "time_ms": live.known.time_ms,
        "work": plain(live.known.work),
        "dtype": live.known.dtype,
        "ceilings": plain(live.known.ceilings),
        "degraded": live.degraded,
        "notes": list(live.notes),
    }


def _evidence(found: Profile, pages: Pages | None) -> dict[str, Any]:
    """What a profile shows, the same for one taken now and for one that was there."""
    memory, compute = loads(found)
    return {
        "kernels": [] if pages is None else [_launch(launch) for launch in pages.launches],
        "loads": {"memory": memory, "compute": compute},
        "top": {axis: plain(metrics) for axis, metrics in top_metrics(found, _TOP).items()},
        "rules": plain(found.rules),
        "warnings": [] if pages is None else list(pages.warnings),
        "note": found.note,
    }


def _launch(launch: Launch) -> dict[str, Any]:
    data: dict[str, Any] = plain(launch)
    data["launches"] = data.pop("invocations")
    return data


def _shown_headroom(found: Headroom, budget: Mapping[Any, int], whose: str) -> str:
    table = Table("axis", "headroom", "methods")
    for axis in AXES:
        table.add_row(axis, f"{found.of(axis):.2f}", str(budget[axis]))
    near = "near its peak" if found.near_peak else "not near its peak"
    return "\n".join([found.why, f"{near.capitalize()}; {found.bound} leads. Ceilings: {whose}.", draw(table)])


def _size(extent: tuple[int, int, int] | None) -> str:
    return "" if extent is None else "x".join(map(str, extent))


@contextmanager
def _as_exit_codes(path: Path) -> Iterator[None]:
    try:
        yield
    except NcuFault as fault:
        if fault.kind == "missing":
            raise UnfitEnvironment(f"{path}: {fault}; or export it where ncu is: --page raw --csv") from fault
        raise ConfigError(f"{path}: {fault}") from fault
