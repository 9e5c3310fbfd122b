"""A kernel profiled here and now, outside a run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.config import Config
from agent.errors import ConfigError, UnfitEnvironment
from agent.lab import Lab, Subject, open_lab, timed
from agent.profiles import Known, on_cpu, on_gpu, with_work
from agent.task import work_of
from backends.types import Built
from profiling.findings import Axis, Headroom, Profile, Verdict
from profiling.headroom import axis_budget, headroom
from profiling.machine_code import instruction_mix
from profiling.ncu.command import Level
from profiling.ncu.faults import NcuFault
from profiling.ncu.pages import Pages
from profiling.ncu.runner import REPORT, degraded_profile


@dataclass(frozen=True, slots=True)
class Live:
    """A kernel profiled here and now.

    Attributes:
        backend: its backend's name.
        verdict: `pass`, `suspect`, or `unverified` without a reference.
        known: its time, work and ceilings.
        profile: of one call.
        pages: what ncu said, None where it was not it.
        degraded: why no counter was read on a GPU and what to do about it; None where they were, and on a CPU.
        notes: what a person should know of the task.
    """

    backend: str
    verdict: Verdict
    known: Known
    profile: Profile
    pages: Pages | None
    degraded: str | None
    notes: tuple[str, ...]

    def headroom(self, config: Config) -> tuple[Headroom, Mapping[Axis, int]]:
        """Its headroom, and the methods per axis that a plan would get."""
        known, search = self.known, config.search
        found = headroom(known.time_ms, known.work, known.ceilings, known.dtype, self.profile, search.near_peak)
        return found, axis_budget(found, search.methods, search.axis_cap)


def profile_live(subject: Subject, level: Level, save: Path | None) -> Live:
    """Build, verify, time and profile a kernel.

    Args:
        subject: the kernel and its task.
        level: how much ncu is asked for; on a CPU a profile is always full.
        save: where ncu's report goes.

    Raises:
        ConfigError: the kernel does not build, or is wrong.
        UnfitEnvironment: it cannot be timed here, or there is no report to save.
        HarnessBroken: no verdict was given.
    """
    with open_lab(subject.config) as lab:
        if save is not None and lab.machine.gpu is None:
            raise ConfigError(f"--save {save}: kernels on the CPU are not profiled by ncu, so there is no report")
        measured = lab.measure(subject.candidate)
        verdict, time_ms = timed(subject.kernel, measured.outcome)
        work = work_of(lab.task, measured.check)
        known = Known(time_ms, work, lab.ceilings, lab.task.dtype)
        assert measured.built is not None
        found, pages, degraded = _taken(lab, measured.built, known, level, save)
    return Live(lab.task.backend.name, verdict, known, found, pages, degraded, lab.task.notes)


def _taken(
    lab: Lab, built: Built, known: Known, level: Level, save: Path | None
) -> tuple[Profile, Pages | None, str | None]:
    """The profile, ncu's pages where it made them, and why there are no counters where there are none."""
    if lab.machine.gpu is None:
        listing = lab.task.backend.disassemble(built)
        return on_cpu(lab.harness, built, known, {} if listing is None else instruction_mix(listing)), None, None
    with tempfile.TemporaryDirectory(prefix="roofclimb-profile-") as folder:
        try:
            collected = on_gpu(lab.harness, built, level, Path(folder) / "ncu")
        except NcuFault as fault:
            if save is not None:
                raise UnfitEnvironment(f"--save {save}: there is no report: {fault}") from fault
            degraded = degraded_profile(known.work, known.ceilings, known.time_ms, known.dtype, fault.what)
            return degraded, None, str(fault)
        if save is not None:
            shutil.copyfile(Path(folder) / "ncu" / REPORT, save)
    return with_work(collected, known), collected.pages, None
