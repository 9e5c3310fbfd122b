"""The headline: a fresh A/B of best against baseline, and the bundle that lets anyone repeat it."""

from __future__ import annotations

import hashlib

from agent.artefacts import write_json, write_text
from agent.events import RunEnded, SessionStarted, StopReason
from agent.run import Kernel, Match, Run
from agent.stages.evidence import on_this_device, profile_kernel


def finish(run: Run, baseline: Kernel, reason: StopReason, note: str) -> None:
    """Measure the headline, write `best/`, end the run."""
    best = on_this_device(run, run.best, baseline)
    match = Match(("baseline", baseline.built), (best.label, best.built))
    comparison = run.compare_all(0, {"final": match})["final"]
    profile = profile_kernel(run, best).profile
    folder = run.folder / "best"
    write_text(folder / run.kernel_file, best.source)
    write_json(folder / "bench.json", comparison)
    write_json(folder / "kernel.profile.json", profile)
    write_json(folder / "manifest.json", _manifest(run, best))
    run.journal.once(RunEnded, "end", lambda: RunEnded(key="end", stop_reason=reason, note=note))


def _manifest(run: Run, best: Kernel) -> dict[str, object]:
    sessions = run.journal.all(SessionStarted)
    kernel = f"best/{run.kernel_file}"
    return {
        "run": run.run_id,
        "kernel": kernel,
        "from": best.label,
        "sha256": {
            "kernel": hashlib.sha256(best.source.encode()).hexdigest(),
            "baseline": hashlib.sha256(run.task.baseline.read_bytes()).hexdigest(),
            "build": best.built.key,
        },
        "versions": dict(run.versions),
        "device": {"id": sessions[-1].device_id, "name": run.machine.name},
        "measure_command": f"python -m agent bench --config config.yaml --kernel {kernel}",
        "run_in": "the run folder",
    }
