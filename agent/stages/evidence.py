"""Cause: what the profile of the best kernel says, how far it is from the floor, and on which axis."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from agent.artefacts import plain, write_json
from agent.events import Evaluated, Profiled, Recalled, RooflineRecorded
from agent.paths import iteration_folder
from agent.profiles import Known, on_cpu, on_gpu, with_work
from agent.run import Kernel, Run, StopRun
from memory.errors import StoreError
from memory.recall import recall
from memory.types import Recall
from profiling.findings import Axis, Evaluation, Headroom, Metric, Profile
from profiling.headroom import axis_budget, headroom, top_metrics
from profiling.machine_code import instruction_mix
from profiling.ncu.command import Level
from profiling.ncu.faults import NcuFault
from profiling.ncu.runner import REPORT, degraded_profile


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an iteration's decisions rest on."""

    profile: Profile
    top: Mapping[Axis, tuple[Metric, ...]]
    mix: Mapping[str, int | float | str]
    headroom: Headroom
    axis_budget: Mapping[Axis, int]
    recall: Recall


def gather(run: Run, iteration: int, best: Kernel) -> Evidence:
    """Profile the best kernel (reused by content), find its headroom, and ask memory.

    Raises:
        StopRun: no axis has as much headroom as `search.near_peak`.
    """
    profiled = profile_kernel(run, best, "targeted")
    profile = profiled.profile
    found = headroom(best.median_ms, run.work, run.ceilings, run.task.dtype, profile, run.search.near_peak)
    budget = axis_budget(found, run.search.methods, run.search.axis_cap)
    run.journal.once(
        RooflineRecorded,
        run.key(iteration, "roofline"),
        lambda: RooflineRecorded(
            key=run.key(iteration, "roofline"), iteration=iteration, headroom=found, axis_budget=budget
        ),
    )
    top = top_metrics(profile, run.search.ncu_top)
    folder = iteration_folder(run.folder, iteration)
    write_json(folder / "roofline.json", {"headroom": plain(found), "axis_budget": budget, "work": plain(run.work)})
    write_json(folder / "ncu_top.json", {axis: plain(metrics) for axis, metrics in top.items()})
    write_json(folder / "best_input.profile.json", profile)
    save_report(run, best, folder / "best_input.ncu-rep")
    if found.near_peak:
        raise StopRun("near-peak", f"near peak: {found.why}")
    return Evidence(profile, top, profiled.mix, found, budget, _recall(run, iteration))


def profile_kernel(run: Run, kernel: Kernel, level: Level = "full") -> Profiled:
    """The profile of a build on this device, measured once; a full one serves where a targeted one is asked for."""
    content = run.task.backend.source_hash(kernel.source)[:16]
    full, targeted = (run.key(0, f"{name}/{content}") for name in ("profile", "targeted"))
    known = run.journal.find(Profiled, full)
    if known is not None:
        return known
    key = full if level == "full" else targeted

    def measure() -> Profiled:
        run.check_interrupted()
        run.progress.activity(f"profiling {kernel.label}")
        listing = run.code.device(kernel.built)
        mix = instruction_mix(listing) if listing is not None else {}
        known = Known(kernel.median_ms, run.work, run.ceilings, run.task.dtype)
        on_host = run.gpu is None
        profile = on_cpu(run.harness, kernel.built, known, mix) if on_host else _on_gpu(run, kernel, known, level)
        return Profiled(key=key, profile=profile, mix=mix)

    return run.journal.once(Profiled, key, measure)


def profile_baseline(run: Run, baseline: Kernel) -> None:
    """The full profile of the kernel as given, once in a run: on another device a targeted one serves."""
    if not run.journal.all(Profiled):
        profile_kernel(run, baseline)


def profile_champion(run: Run, iteration: int, champion: Kernel) -> None:
    """The full profile that a kernel needs to become the best, and ncu's report beside it."""
    profile_kernel(run, champion)
    save_report(run, champion, iteration_folder(run.folder, iteration) / "kernel.ncu-rep")


def _on_gpu(run: Run, kernel: Kernel, known: Known, level: Level) -> Profile:
    """By Nsight Compute; where it cannot read counters the run goes on with counted work, and says so."""
    try:
        return with_work(on_gpu(run.harness, kernel.built, level, report_folder(run, kernel)), known)
    except NcuFault as fault:
        run.note(f"degraded/{fault.what}", f"degraded, no counters: {fault.what}; {fault.remedy}")
        return degraded_profile(known.work, known.ceilings, known.time_ms, known.dtype, fault.what)


def report_folder(run: Run, kernel: Kernel) -> Path:
    """Where ncu's report of a build lies, if it was profiled on a GPU."""
    return run.folder / "profiles" / run.task.backend.source_hash(kernel.source)[:16]


def save_report(run: Run, kernel: Kernel, target: Path) -> None:
    """Put ncu's report of a kernel beside what rests on it, where there is one."""
    report = report_folder(run, kernel) / REPORT
    if not report.is_file() or target.exists():
        return
    try:
        os.link(report, target)
    except OSError:  # a file system without links
        shutil.copyfile(report, target)


def on_this_device(run: Run, kernel: Kernel, baseline: Kernel) -> Kernel:
    """The kernel with a time measured on the device of this session; the baseline where it does not run here."""
    if kernel.epoch == run.epoch:
        return kernel
    key = run.key(0, f"again/{kernel.label}")

    def measure() -> Evaluated:
        run.progress.activity(f"measuring {kernel.label} on this device")
        outcome = run.harness.evaluate(kernel.built.artifact)
        return Evaluated(key=key, iteration=0, branch="best", build_s=None, outcome=outcome)

    outcome = run.journal.once(Evaluated, key, measure).outcome
    if not isinstance(outcome, Evaluation) or outcome.verdict != "pass" or outcome.timing is None:
        run.note(key, f"{kernel.label} is not usable on this device ({outcome.reason}); back to the baseline")
        return baseline
    return replace(kernel, median_ms=outcome.timing.median_ms, epoch=run.epoch)


def _recall(run: Run, iteration: int) -> Recall:
    def ask() -> Recalled:
        try:
            recalled = recall(
                run.store.query(related_to=run.scope), run.scope, now=datetime.now(timezone.utc), versions=run.versions
            )
        except StoreError as error:
            # A night goes on without its memory; the report says so.
            run.note(f"iter{iteration}/recall", f"iteration {iteration}: nothing recalled: {error}")
            recalled = Recall()
        return Recalled(key=f"iter{iteration}", iteration=iteration, recall=recalled)

    return run.journal.once(Recalled, f"iter{iteration}", ask).recall
