"""The headline: a fresh A/B of best against baseline, and the bundle that lets anyone repeat it."""

from __future__ import annotations

from agent.artefacts import write_json
from agent.bundle import Device, claim_of, write_bundle
from agent.events import RunEnded, ShapesDrawn, StopReason
from agent.run import Kernel, Match, Run
from agent.stages.evidence import on_this_device, profile_kernel


def finish(run: Run, baseline: Kernel, reason: StopReason, note: str) -> None:
    """Measure the headline, write `best/`, end the run."""
    best = on_this_device(run, run.best, baseline)
    match = Match(("baseline", baseline.built), (best.label, best.built))
    comparison = run.compare_all(0, {"final": match})["final"]
    profile = profile_kernel(run, best).profile
    folder = run.folder / "best"
    write_json(folder / "bench.json", comparison)
    write_json(folder / "kernel.profile.json", profile)
    about = {
        "run": run.run_id,
        "origin": best.label,
        "build_key": best.built.key,
        "claim": claim_of(comparison) if best.label != baseline.label else None,
        "least_gain": run.smallest_gain,
        "device": Device.of(run.machine),
        "versions": dict(run.versions),
    }
    shapes = [shape for drawn in run.journal.all(ShapesDrawn) for shape in drawn.shapes]
    write_bundle(folder, run.task.config, best.source, shapes, about)
    run.journal.once(RunEnded, "end", lambda: RunEnded(key="end", stop_reason=reason, note=note))
