"""What `profile --from FILE` and `roofline` show: Nsight Compute's numbers, of a report or a log already there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.table import Table

from agent.artefacts import plain
from agent.errors import ConfigError, UnfitEnvironment
from agent.inspection import draw
from profiling.gpu_metrics import gpu_loads, report_ceilings
from profiling.headroom import NEAR_PEAK, axis_budget, headroom, headroom_of, top_metrics
from profiling.ncu.faults import NcuFault
from profiling.ncu.pages import Launch, Pages, parse_pages
from profiling.ncu.runner import make_profile, read_report
from profiling.ncu.summary import kernels_of, overall
from profiling.types import AXES, Ceilings, Headroom, Profile, Work

_MOST_BYTES = 512 << 20
_TOP = 5
_RULES_SHOWN = 8
_RULE_WIDTH = 300
_UNKNOWN_WORK = Work(None, None)
Result = tuple[Mapping[str, Any], str]


@dataclass(frozen=True, slots=True)
class Question:
    """What `roofline` is asked. What is None is not known.

    Attributes:
        time_ms: the call's time; by default that of the profile, which is the GPU's under ncu.
        work: what one call must do.
        dtype: the arithmetic that the operations are counted at.
        ceilings: this GPU's as measured, or the user's own numbers; by default the chip's theoretical peaks as far as
            the report tells them.
        methods, axis_cap: for the budget that a plan would get.
        near_peak: headroom under which, on all axes, a kernel counts as near its peak.
    """

    time_ms: float | None = None
    work: Work = _UNKNOWN_WORK
    dtype: str = "float32"
    ceilings: Ceilings | None = None
    methods: int = 3
    axis_cap: int = 2
    near_peak: float = NEAR_PEAK


def profile_from(path: Path) -> Result:
    """Kernels, top metrics and rules of a report (`.ncu-rep`), a CSV page or a log of Nsight Compute.

    Raises:
        ConfigError: no such file, or no output of ncu with a kernel in it.
        UnfitEnvironment: a report, and no ncu to read it with.
    """
    pages = read_pages(path)
    profile = _profile(pages, Question())
    top = top_metrics(profile, _TOP)
    memory, compute = gpu_loads(profile.kernels)
    data = {
        "file": str(path),
        "kernels": [_launch(launch) for launch in pages.launches],
        "loads": {"memory": memory, "compute": compute},
        "top": {axis: plain(metrics) for axis, metrics in top.items()},
        "rules": plain(pages.rules),
        "warnings": list(pages.warnings),
        "note": profile.note,
    }
    return data, shown_profile(profile, str(path))


def roofline_from(path: Path | None, question: Question) -> Result:
    """How far a kernel is from its floor, and on which axis: from a profile, from numbers alone, or from both.

    Raises:
        ConfigError: nothing to go by, or a file that is no output of ncu.
        UnfitEnvironment: a report, and no ncu to read it with.
    """
    pages = None if path is None else read_pages(path)
    profile = None if pages is None else _profile(pages, question)
    time_ms = question.time_ms if question.time_ms is not None else None if profile is None else _gpu_time_ms(profile)
    if time_ms is None or time_ms <= 0:
        raise ConfigError("roofline: the kernel's time is not known; give it in ms, or a profile that holds it")
    ceilings, whose = question.ceilings, "as given"
    if ceilings is not None:
        whose = ceilings.provenance.get("method") or whose
    elif pages is not None:
        ceilings = report_ceilings(overall(kernels_of(pages.launches)))
        whose = "the chip's theoretical peaks, from the report: no kernel quite reaches them"
    found = _headroom(time_ms, profile, ceilings, question)
    budget = axis_budget(found, question.methods, question.axis_cap)
    data = {
        "file": None if path is None else str(path),
        "headroom": plain(found),
        "axis_budget": budget,
        "work": plain(question.work),
        "dtype": question.dtype,
        "ceilings": None if ceilings is None else plain(ceilings),
    }
    return data, _shown_headroom(found, budget, whose if ceilings is not None else "unknown")


def read_pages(path: Path) -> Pages:
    """A report through ncu, anything else as text.

    Raises:
        ConfigError, UnfitEnvironment: as `profile_from`.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
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
    kernels = Table("kernel", "launches", "time", "share", "grid", "block", title=title)
    for kernel in profile.kernels:
        share = "" if kernel.share is None else f"{100 * kernel.share:.0f}%"
        time = "not measured" if kernel.time_ms is None else f"{kernel.time_ms:.4g} ms"
        kernels.add_row(kernel.name, str(kernel.launches), time, share, _size(kernel.grid), _size(kernel.block))
    parts = [draw(kernels)]
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


def _headroom(time_ms: float, profile: Profile | None, ceilings: Ceilings | None, question: Question) -> Headroom:
    if ceilings is None:
        memory, compute = gpu_loads(profile.kernels) if profile is not None else (None, None)
        return headroom_of(
            time_ms, flops_floor_ms=None, bytes_floor_ms=None, w_m=memory, w_c=compute, near_peak=question.near_peak
        )
    profile = profile or Profile("counted", "degraded", (), "")
    return headroom(time_ms, question.work, ceilings, question.dtype, profile, question.near_peak)


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
